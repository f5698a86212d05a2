//! The crate from outside: properties, hostile input, and other people's libraries as witnesses.

#[cfg(test)]
mod checksums;
#[cfg(test)]
mod compression;
#[cfg(test)]
mod envelopes;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod produce;
#[cfg(test)]
mod reading;
#[cfg(test)]
mod rewriting;
#[cfg(test)]
mod samples;
