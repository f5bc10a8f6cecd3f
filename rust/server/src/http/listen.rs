//! Binding the socket, before anything expensive is started.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use octavo_core::{Error, Result};
use socket2::{Domain, Socket, Type};

use super::config::ServerConfig;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// A socket that listens, or would as soon as somebody serves it.
#[derive(Debug)]
pub enum BoundListener {
    /// An address and port.
    Tcp(TcpListener),
    /// A socket in the file system; the file goes when the server ends.
    Unix(UnixListener, PathBuf),
}

impl BoundListener {
    /// `http://127.0.0.1:8000` or `unix:/path`, for people.
    pub fn address(&self) -> String {
        match self {
            Self::Tcp(listener) => match listener.local_addr() {
                Ok(address) => format!("http://{address}"),
                Err(_) => "http://?".to_owned(),
            },
            Self::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }

    /// The port, 0 for a Unix socket.
    pub fn port(&self) -> u16 {
        match self {
            Self::Tcp(listener) => listener.local_addr().map_or(0, |address| address.port()),
            Self::Unix(..) => 0,
        }
    }
}

/// Binds the configured address.
///
/// # Errors
/// Invalid, naming the option: the port or path is in use, may not be used or
/// does not exist.
pub fn bind(config: &ServerConfig) -> Result<BoundListener> {
    match &config.uds {
        Some(path) => bind_unix(path),
        None => bind_tcp(&config.host, config.port),
    }
}

fn bind_tcp(host: &str, port: u16) -> Result<BoundListener> {
    let addresses = (host, port)
        .to_socket_addrs()
        .map_err(|error| Error::invalid("host", format!("host {host} cannot be resolved: {error}")))?;
    let mut last = None;
    for address in addresses {
        match listen(address) {
            Ok(listener) => return Ok(BoundListener::Tcp(listener)),
            Err(error) => last = Some(error),
        }
    }
    Err(match last {
        Some(error) if error.kind() == ErrorKind::AddrInUse => Error::invalid(
            "port",
            format!(
                "port {port} on {host} is in use; stop the program that listens there or choose another port"
            ),
        ),
        Some(error) if error.kind() == ErrorKind::PermissionDenied => Error::invalid(
            "port",
            format!("port {port} on {host} may not be used by this user; choose one from 1024 upwards"),
        ),
        Some(error) => Error::invalid("host", format!("cannot listen on {host}, port {port}: {error}")),
        None => Error::invalid("host", format!("host {host} has no address")),
    })
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn bind_unix(path: &Path) -> Result<BoundListener> {
    let fail = |error: std::io::Error| {
        Error::invalid("uds", format!("cannot listen on the Unix socket {}: {error}", path.display()))
    };
    let is_socket = path.metadata().is_ok_and(|metadata| metadata.file_type().is_socket());
    if is_socket {
        if UnixStream::connect(path).is_ok() {
            return Err(Error::invalid(
                "uds",
                format!(
                    "the Unix socket {} is in use; stop the program that listens there or choose another path",
                    path.display()
                ),
            ));
        }
        // Left behind by a server that did not end in peace.
        std::fs::remove_file(path).map_err(fail)?;
    }
    let listener = UnixListener::bind(path).map_err(fail)?;
    listener.set_nonblocking(true).map_err(fail)?;
    Ok(BoundListener::Unix(listener, path.to_owned()))
}
