//! Verification of a server's certificate: by CAs, or because it is one of the certificates that are trusted.

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use std::io;
use std::sync::Arc;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Verifies servers by CAs. A server's own certificate in the file of CAs is accepted too, if its name and its time are right: tools such as
/// OpenSSL make self-signed certificates as CAs, which WebPKI refuses as those of a server (`CaUsedAsEndEntity`).
#[derive(Debug)]
pub(super) struct Verifier {
    by_authorities: Arc<WebPkiServerVerifier>,
    /// Accepted as they are.
    given: Vec<CertificateDer<'static>>,
}

impl Verifier {
    pub(super) fn new(by_authorities: Arc<WebPkiServerVerifier>, given: Vec<CertificateDer<'static>>) -> Verifier {
        Verifier { by_authorities, given }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.given.iter().any(|one| one == end_entity) {
            verify_given(end_entity, server_name, now)?;
            return Ok(ServerCertVerified::assertion());
        }
        self.by_authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authorities.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_authorities.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_authorities.supported_verify_schemes()
    }
}

/// Verifies the name and the validity of a certificate that is trusted as it is.
fn verify_given(certificate: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), Error> {
    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = parsed.validity();
    if now_s < validity.not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now_s > validity.not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}

/// Returns what to do if an error of a connection is that of a certificate which was not accepted. `None` for other errors.
#[must_use]
pub fn certificate_advice(error: &io::Error) -> Option<&'static str> {
    let Some(Error::InvalidCertificate(why)) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else {
        return None;
    };
    Some(match why {
        // `Other` is CaUsedAsEndEntity: a self-signed certificate that is not the given one.
        CertificateError::UnknownIssuer | CertificateError::Other(_) => {
            "pass --ca FILE with the certificate of the CA that signed the server's, or with the server's own if it is self-signed"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "connect by a name that the server's certificate has, or make one with this name (`polylogue tls create`)"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "renew the server's certificate (`polylogue tls create --renew` if that created it)"
        }
        _ => "verify the server's certificate",
    })
}
