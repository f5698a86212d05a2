//! The envelope of every request and response: a length, a header, a body.
//!
//! A request header is of version 1 or 2 by its API key and version; the client id is a plain string in both. A
//! response header is of version 0 or 1, and for ApiVersions always 0, because a client that asks for versions
//! does not know yet what the broker understands.

use super::error::{DecodeError, EncodeError};
use super::generated::request_header::RequestHeader;
use super::generated::response_header::ResponseHeader;
use super::reader::Reader;
use super::writer::Writer;
use super::{ApiKey, Message, Request, StrBytes};
use bytes::Bytes;
use polylogue_types::Chunk;

/// Bytes of the length in front of every frame.
pub const LENGTH_BYTES: usize = 4;

/// The length of the frame that `bytes` starts with, without the prefix itself. `None`: fewer than four bytes yet.
///
/// # Errors
/// When it is negative or above `max`: the connection cannot go on.
pub fn frame_len(bytes: &[u8], max: usize) -> Result<Option<usize>, DecodeError> {
    let Some(prefix) = bytes.first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let len = i32::from_be_bytes(*prefix);
    match usize::try_from(len) {
        Ok(bytes) if bytes <= max => Ok(Some(bytes)),
        _ => Err(DecodeError::FrameLength { len, max }),
    }
}

/// A request whose header has been read and whose body has not.
#[derive(Clone, Debug)]
pub struct RequestFrame {
    /// What is asked.
    pub api_key: ApiKey,
    /// In which version: not yet held against the versions that are served.
    pub version: i16,
    /// What the response must repeat.
    pub correlation_id: i32,
    /// How the client calls itself.
    pub client_id: Option<StrBytes>,
    /// The body, sharing the frame's memory.
    pub body: Reader,
}

impl RequestFrame {
    /// Reads the header of a request; `frame` comes without its length.
    ///
    /// The version may not exist: the caller answers it, for ApiVersions with error 35 in a
    /// response of version 0, for others by closing the connection.
    ///
    /// # Errors
    /// When the key is unknown or the header is damaged: the connection cannot go on.
    pub fn decode(frame: Bytes) -> Result<RequestFrame, DecodeError> {
        let mut body = Reader::new(frame);
        let mut prefix = body.clone();
        let key = prefix.i16("RequestHeader.RequestApiKey")?;
        let version = prefix.i16("RequestHeader.RequestApiVersion")?;
        let api_key = ApiKey::try_from(key)?;
        let header = RequestHeader::decode(&mut body, api_key.request_header_version(version))?;
        Ok(RequestFrame { api_key, version, correlation_id: header.correlation_id, client_id: header.client_id, body })
    }
}

/// A whole response frame, length included. The records inside are passed on, not copied.
///
/// # Errors
/// When the response cannot be written at this version.
pub fn encode_response<M: Message>(
    api_key: ApiKey,
    version: i16,
    correlation_id: i32,
    response: &M,
) -> Result<Vec<Chunk>, EncodeError> {
    let mut w = Writer::frame();
    ResponseHeader { correlation_id }.encode(&mut w, api_key.response_header_version(version))?;
    response.encode(&mut w, version)?;
    w.finish_frame()
}

/// A whole request frame, length included: the client's side.
///
/// # Errors
/// When the request cannot be written at this version.
pub fn encode_request<R: Request>(
    version: i16,
    correlation_id: i32,
    client_id: Option<StrBytes>,
    request: &R,
) -> Result<Vec<Chunk>, EncodeError> {
    let mut w = Writer::frame();
    let header =
        RequestHeader { request_api_key: R::API_KEY.code(), request_api_version: version, correlation_id, client_id };
    header.encode(&mut w, R::API_KEY.request_header_version(version))?;
    request.encode(&mut w, version)?;
    w.finish_frame()
}

/// Reads a response's header; returns its correlation id and its body. For clients.
///
/// # Errors
/// When the header is damaged.
pub fn decode_response_header(frame: Bytes, api_key: ApiKey, version: i16) -> Result<(i32, Reader), DecodeError> {
    let mut body = Reader::new(frame);
    let header = ResponseHeader::decode(&mut body, api_key.response_header_version(version))?;
    Ok((header.correlation_id, body))
}
