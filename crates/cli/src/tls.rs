//! `polylogue tls`: a certificate authority and certificates of brokers, for who has none.

use super::Failure;
use super::args::{CreateTlsArgs, TlsCommand};
use super::output::Out;
use polylogue_env::Env;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, SerialNumber, date_time_ymd,
};
use serde_json::json;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The names for a broker on this machine.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// Validity of a CA.
const CA_DAYS: u16 = 3_650;
const DAY: Duration = Duration::from_secs(86_400);
/// A certificate begins to be valid this long before now, for clients whose clocks are behind.
const BEFORE: Duration = Duration::from_secs(3_600);
/// Bytes of a serial number; at most 20 (RFC 5280), the first bit 0.
const SERIAL_BYTES: usize = 16;
/// The longest common name (RFC 5280).
const COMMON_NAME_CHARS_MAX: usize = 64;
/// The longest DNS name, and the longest part of one.
const HOST_CHARS_MAX: usize = 253;
const LABEL_CHARS_MAX: usize = 63;
/// Permissions of keys and of certificates.
const SECRET: u32 = 0o600;
const PUBLIC: u32 = 0o644;

pub(super) fn run(command: &TlsCommand, out: &Out) -> Result<(), Failure> {
    match command {
        TlsCommand::Create(args) => create(args, out),
    }
}

/// Parses a name of a certificate: an IP address, or a DNS name, whose first part may be `*`.
pub(super) fn host_name(text: &str) -> Result<String, String> {
    if let Ok(address) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    if text.contains([':', '/']) {
        return Err("expected a name or an IP address, without scheme and port".to_owned());
    }
    let is_plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_');
    let is_label = |label: &str| (1..=LABEL_CHARS_MAX).contains(&label.len()) && label.bytes().all(is_plain);
    let rest = text.strip_prefix("*.").unwrap_or(text);
    if text.len() <= HOST_CHARS_MAX && rest.split('.').all(is_label) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("expected a DNS name (international ones as xn--...) or an IP address".to_owned())
    }
}

/// The files of a directory.
struct Files {
    ca: PathBuf,
    ca_key: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn of(dir: &Path) -> Files {
        let [ca, ca_key, certificate, key] =
            ["ca.crt", "ca.key", "server.crt", "server.key"].map(|name| dir.join(name));
        Files { ca, ca_key, certificate, key }
    }
}

fn create(args: &CreateTlsArgs, out: &Out) -> Result<(), Failure> {
    let files = Files::of(&args.dir);
    let now = Duration::from_millis(u64::try_from(Env::real().clock.now_ms()).unwrap_or(0));
    let until = now + DAY * u32::from(args.days);
    let mut names = args.name.clone();
    if names.is_empty() && args.renew {
        names = names_of(&files.certificate)?;
    } else if names.is_empty() {
        names = LOCAL.map(str::to_owned).to_vec();
    }
    let all = std::mem::take(&mut names);
    all.into_iter().for_each(|name| {
        if !names.contains(&name) {
            names.push(name)
        }
    });
    if args.renew {
        renew(&files, &names, now, until)?;
    } else {
        create_all(&args.dir, &files, &names, now, until)?;
    }
    let path = |path: &Path| path.display().to_string();
    let [ca, ca_key, certificate, key] =
        [&files.ca, &files.ca_key, &files.certificate, &files.key].map(|file| path(file));
    let expires = humantime::format_rfc3339_seconds(UNIX_EPOCH + until).to_string();
    if out.json {
        return out.value(&json!({ "ca": ca, "ca_key": ca_key, "certificate": certificate, "key": key, "names": names,
            "expires": expires }));
    }
    let day = expires.split('T').next().unwrap_or_default();
    let names = names.join(", ");
    if args.renew {
        return out.line(&format!("renewed {certificate}: for {names}, valid until {day}"));
    }
    out.line(&format!("created a CA, and a certificate for {names}, valid until {day}"))?;
    out.table(
        &["FILE", "USE"],
        &[
            vec![ca, "clients trust it (--ca, ssl.ca.location, ssl.truststore.location)".to_owned()],
            vec![ca_key, "signs certificates (--renew): keep it secret".to_owned()],
            vec![certificate.clone(), "the broker's certificate: --set tls.certificate=FILE".to_owned()],
            vec![key.clone(), "the broker's key: --set tls.key=FILE".to_owned()],
        ],
    )?;
    let listen = "--listen kafka+tls=0.0.0.0:9093";
    out.line(&format!("polylogue serve {listen} --set tls.certificate={certificate} --set tls.key={key}"))
}

fn create_all(dir: &Path, files: &Files, names: &[String], now: Duration, until: Duration) -> Result<(), Failure> {
    for file in [&files.ca, &files.ca_key, &files.certificate, &files.key] {
        if file.exists() {
            let text = format!(
                "{} exists already: pass --renew for a new certificate of the same CA, or another directory",
                file.display()
            );
            return Err(Failure::Usage(text));
        }
    }
    let ca_key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    // Clients that trust several CAs tell them apart by their names.
    let id: String = random()?[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    params.distinguished_name.push(DnType::CommonName, format!("polylogue CA {id}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_times(&mut params, now, now + DAY * u32::from(CA_DAYS))?;
    let ca = params.self_signed(&ca_key).map_err(failed)?.pem();
    let ca_key_pem = ca_key.serialize_pem();
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = signed(names, &key, &Issuer::new(params, ca_key), now, until)?;
    std::fs::create_dir_all(dir).map_err(|e| on(dir, &e))?;
    write_new(&files.ca_key, &ca_key_pem, SECRET)?;
    write_new(&files.key, &key.serialize_pem(), SECRET)?;
    write_new(&files.ca, &ca, PUBLIC)?;
    write_new(&files.certificate, &certificate, PUBLIC)
}

/// Replaces the certificate, by one file that takes the place of the other: a broker never reads half of it.
fn renew(files: &Files, names: &[String], now: Duration, until: Duration) -> Result<(), Failure> {
    let key = KeyPair::from_pem(&read(&files.key)?).map_err(|e| unusable(&files.key, &e))?;
    let ca_key = KeyPair::from_pem(&read(&files.ca_key)?).map_err(|e| unusable(&files.ca_key, &e))?;
    let ca = read(&files.ca)?;
    let ca_until_s = parsed(&files.ca, &ca, |ca| ca.validity().not_after.timestamp())?;
    let left_days = ca_until_s.saturating_sub(i64::try_from(now.as_secs()).unwrap_or(i64::MAX)) / 86_400;
    if ca_until_s < i64::try_from(until.as_secs()).unwrap_or(i64::MAX) {
        let text = match left_days {
            1.. => format!("{} is valid for {left_days} days only: give --days {left_days}", files.ca.display()),
            _ => format!("{} has expired: create another CA in another directory", files.ca.display()),
        };
        return Err(Failure::Usage(text));
    }
    let issuer = Issuer::from_ca_cert_pem(&ca, ca_key).map_err(|e| unusable(&files.ca, &e))?;
    let certificate = signed(names, &key, &issuer, now, until)?;
    let next = files.certificate.with_extension("crt.new");
    let _ = std::fs::exists(&next).map(|there| there.then(|| Env::real().disk.remove(&next)));
    write_new(&next, &certificate, PUBLIC)?;
    Env::real().disk.rename(&next, &files.certificate).map_err(|e| on(&files.certificate, &e))
}

/// Makes a broker's certificate (PEM).
fn signed(
    names: &[String],
    key: &KeyPair,
    issuer: &Issuer<'_, KeyPair>,
    now: Duration,
    until: Duration,
) -> Result<String, Failure> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let first = names.first().filter(|name| name.len() <= COMMON_NAME_CHARS_MAX);
    params.distinguished_name.push(DnType::CommonName, first.map_or("polylogue", String::as_str));
    for name in names {
        params.subject_alt_names.push(match name.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(name.as_str().try_into().map_err(failed)?),
        });
    }
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    set_times(&mut params, now, until)?;
    Ok(params.signed_by(key, issuer).map_err(failed)?.pem())
}

/// Sets the validity and a serial number.
fn set_times(params: &mut CertificateParams, now: Duration, until: Duration) -> Result<(), Failure> {
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(BEFORE);
    params.not_after = epoch + until;
    let mut serial = random()?;
    // Positive, and of all bytes.
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(())
}

fn random() -> Result<[u8; SERIAL_BYTES], Failure> {
    let mut bytes = [0; SERIAL_BYTES];
    Env::real().rng.fill(&mut bytes);
    Ok(bytes)
}

/// Returns the names of a certificate.
fn names_of(path: &Path) -> Result<Vec<String>, Failure> {
    let pem = read(path)?;
    parsed(path, &pem, |certificate| {
        let extensions = certificate.extensions().iter().filter_map(|one| match one.parsed_extension() {
            ParsedExtension::SubjectAlternativeName(names) => Some(names),
            _ => None,
        });
        extensions.flat_map(|names| names.general_names.iter().filter_map(shown)).collect()
    })
}

fn shown(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
        },
        _ => None,
    }
}

/// Reads something of a certificate (PEM).
fn parsed<T>(path: &Path, pem: &str, read: impl FnOnce(&X509Certificate<'_>) -> T) -> Result<T, Failure> {
    let wrong = |e: &dyn std::fmt::Display| unusable(path, e);
    let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).map_err(|e| wrong(&e))?;
    let (_, certificate) = X509Certificate::from_der(&block.contents).map_err(|e| wrong(&e))?;
    Ok(read(&certificate))
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|e| {
        let hint = if e.kind() == io::ErrorKind::NotFound { "; without --renew all files are created" } else { "" };
        Failure::Other(format!("{}: {e}{hint}", path.display()))
    })
}

fn write_new(path: &Path, content: &str, mode: u32) -> Result<(), Failure> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(|e| on(path, &e))?;
    file.write_all(content.as_bytes()).and_then(|()| file.sync_all()).map_err(|e| on(path, &e))
}

fn on(path: &Path, e: &io::Error) -> Failure {
    Failure::Other(format!("{}: {e}", path.display()))
}

fn unusable(path: &Path, e: &dyn std::fmt::Display) -> Failure {
    Failure::Other(format!("{} cannot be used: {e}", path.display()))
}

fn failed(e: rcgen::Error) -> Failure {
    Failure::Other(format!("cannot create a certificate: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_not_valid_for_longer_than_its_ca() {
        let dir = std::env::temp_dir().join(format!("polylogue-cli-tls-{}", std::process::id()));
        let (files, names, start) = (Files::of(&dir), ["localhost".to_owned()], DAY * 20_000);
        create_all(&dir, &files, &names, start, start + DAY).expect("created");
        let renewed = |after: u32, days: u32| {
            let now = start + DAY * after;
            renew(&files, &names, now, now + DAY * days).err().map(Failure::text)
        };
        assert_eq!(renewed(100, 3_550), None);
        let refused = renewed(100, 3_551).unwrap_or_default();
        assert!(refused.contains("valid for 3550 days only: give --days 3550"), "{refused}");
        let refused = renewed(3_650, 1).unwrap_or_default();
        assert!(refused.contains("has expired: create another CA"), "{refused}");
        std::fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn names_of_certificates() {
        for (given, name) in [
            ("broker.example", Some("broker.example")),
            ("Broker-1.Example", Some("broker-1.example")),
            ("*.example", Some("*.example")),
            ("10.0.0.1", Some("10.0.0.1")),
            ("[::1]", Some("::1")),
            ("::1", Some("::1")),
            ("localhost", Some("localhost")),
            ("localhost:9092", None),
            ("https://localhost", None),
            ("a..b", None),
            ("a.*.b", None),
            ("*", None),
            ("bücher.example", None),
            ("", None),
        ] {
            assert_eq!(host_name(given).ok().as_deref(), name, "{given}");
        }
    }
}
