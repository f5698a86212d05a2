//! HTTP requests to the admin API of a peer.

use crate::error::{BenchError, Context, Result};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The maximum size of a response. Bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Timeout for a response.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends a request to `HOST:PORT` and returns the body of the response.
///
/// # Errors
/// No response, or an error status.
pub fn ask(server: &str, method: &str, path: &str, kind: &str, body: &str) -> Result<String> {
    let said = || format!("HTTP request to {server} failed");
    let mut stream = TcpStream::connect(server).context(said)?;
    stream.set_read_timeout(Some(PATIENCE)).context(said)?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).context(said)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).context(said)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status.starts_with('2') {
        return Ok(body.to_owned());
    }
    Err(BenchError::new(format!("{method} {path} on {server} failed with status {status}: {}", body.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufRead;
    use std::io::BufReader;
    use std::net::TcpListener;

    fn answer(text: &'static str) -> Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = listener.local_addr().expect("an address").to_string();
        let thread = std::thread::Builder::new().spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let heads =
                BufReader::new(stream.try_clone().expect("a socket")).lines().map_while(std::result::Result::ok);
            let first = heads.take_while(|line| !line.is_empty()).next();
            stream.write_all(text.as_bytes()).expect("the client reads");
            first
        });
        let stated = ask(&server, "PUT", "/a?b=c", "text/plain", "");
        let asked = thread.expect("a thread").join().expect("it ends");
        assert_eq!(asked.as_deref(), Some("PUT /a?b=c HTTP/1.1"));
        stated
    }

    #[test]
    fn a_body_is_returned_and_an_error_status_is_an_error() {
        assert_eq!(answer("HTTP/1.1 200 OK\r\nA: b\r\n\r\nyes"), Ok("yes".to_owned()));
        assert_eq!(answer("HTTP/1.1 204 No Content\r\n\r\n"), Ok(String::new()));
        let stated = answer("HTTP/1.1 409 Conflict\r\n\r\nit is there").expect_err("a refusal").to_string();
        assert!(stated.contains("409") && stated.contains("it is there"), "{stated}");
    }
}
