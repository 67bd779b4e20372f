//! What a communicator's connections are made with.

use crate::border::{Failure, Result};
use crate::connection::{Connection, Listening};
use crate::engine::Engine;
use busbw_nccl_abi::net::{CommConfig, HANDLE_BYTES};
use busbw_transport::Token;
use busbw_transport::tcp::{Config, Handle};
use std::ffi::c_int;
use std::sync::Arc;

/// A communicator's context (since version 11), or that of one call.
pub(crate) struct Context {
    engine: Arc<Engine>,
    config: Config,
}

impl Context {
    /// The context for a communicator with this configuration.
    pub fn new(engine: Arc<Engine>, config: Option<&CommConfig>) -> Self {
        let traffic_class = config.and_then(|config| engine.traffic_class(config.traffic_class));
        let config = Config { traffic_class, ..engine.net().config().clone() };
        Context { engine, config }
    }

    /// Listens on a device, for who holds a token that nobody else has.
    pub fn listen(&self, device: c_int) -> Result<(Listening, [u8; HANDLE_BYTES])> {
        const { assert!(Handle::SIZE <= HANDLE_BYTES) };
        let (device, _) = self.engine.device(device)?;
        let listener = self.engine.net().with(self.config.clone(), Token::random()?)?.listen(device)?;
        let mut handle = [0; HANDLE_BYTES];
        handle[..Handle::SIZE].copy_from_slice(&listener.handle().to_bytes());
        Ok((Listening::new(listener), handle))
    }

    /// Goes on with a connection to a listener, or starts it; `None` while it is not made.
    pub fn connect(&self, device: c_int, handle: &[u8; HANDLE_BYTES]) -> Result<Option<Box<Connection>>> {
        let (device, _) = self.engine.device(device)?;
        let handle = Handle::from_bytes(handle).map_err(|_| {
            Failure::usage("the handle to connect to is none of busbw's: every rank must use the same network plugin")
        })?;
        Ok(self.engine.connect(&self.config, device, &handle)?.map(Connection::sending))
    }
}
