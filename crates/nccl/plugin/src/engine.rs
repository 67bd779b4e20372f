//! What the communicators of a process share: its NICs, and the connections that are being made.

use crate::border::{Failure, Result};
use crate::device::Device;
use crate::{log, settings};
use busbw_nccl_abi::net::TRAFFIC_CLASS_UNDEF;
use busbw_transport::interfaces::{self, Interface};
use busbw_transport::tcp::{Config, Connecting, Handle, Net, SendComm};
use busbw_transport::wait::Cores;
use busbw_transport::{Cancellation, Token};
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

/// Made by the first `init`, for as long as the process: NCCL asks for devices without saying for which communicator, and
/// keeps pointers to their names.
static ENGINE: Mutex<Option<Arc<Engine>>> = Mutex::new(None);

/// The plugin's state in a process.
pub(crate) struct Engine {
    net: Net,
    devices: Vec<Device>,
    attempts: Mutex<HashMap<Target, Attempt>>,
    traffic_class_told: Once,
}

/// A connection that is being made: NCCL calls `connect` again and again with the handle, and nothing else tells which
/// connection it asks for. Two attempts from one device to one listener share this, and are made one after the other.
type Target = (usize, [u8; Handle::SIZE]);

struct Attempt {
    connecting: Connecting,
    asked_for: Instant,
}

impl Engine {
    /// NCCL asks many times a second; a connection that it has not asked for in so long, it has given up.
    const FORGOTTEN: Duration = Duration::from_secs(120);

    /// The process's engine, made where there is none: chooses the NICs and reads the settings.
    pub fn start() -> Result<Arc<Engine>> {
        let mut engine = ENGINE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(engine) = &*engine {
            return Ok(Arc::clone(engine));
        }
        let new = Arc::new(Engine::new(&|name| std::env::var(name).ok())?);
        *engine = Some(Arc::clone(&new));
        Ok(new)
    }

    /// The engine of an `init` that was before.
    pub fn get() -> Result<Arc<Engine>> {
        let engine = ENGINE.lock().unwrap_or_else(PoisonError::into_inner);
        engine.clone().ok_or_else(|| Failure::usage("called before init"))
    }

    fn new(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let (names, family) = (variable("NCCL_SOCKET_IFNAME"), variable("NCCL_SOCKET_FAMILY"));
        let chosen = interfaces::choose(&interfaces::list()?, names.as_deref(), family.as_deref())?;
        let config = settings::read(variable)?;
        log::info(&format!("Using {}", describe(&chosen)));
        busbw_transport::variables::unknown_here().iter().for_each(|line| log::warn(line));
        let devices = chosen.iter().enumerate().map(|(number, interface)| Device::new(number, interface)).collect();
        let net = Net::new(chosen, config, Token::random()?, Cancellation::new(), Cores::Own)?;
        Ok(Engine { net, devices, attempts: Mutex::default(), traffic_class_told: Once::new() })
    }

    /// The transport with the process's settings.
    pub fn net(&self) -> &Net {
        &self.net
    }

    pub fn devices(&self) -> usize {
        self.devices.len()
    }

    /// A device by NCCL's number for it.
    pub fn device(&self, number: c_int) -> Result<(usize, &Device)> {
        let device = usize::try_from(number).ok().and_then(|at| self.devices.get(at).map(|device| (at, device)));
        device.ok_or_else(|| Failure::usage(format!("there is no device {number}; there are {}", self.devices.len())))
    }

    /// A communicator's traffic class as the byte of the IP header (DSCP and ECN), as with `NCCL_IB_TC`. One that is not
    /// possible is reported once: versions before 11 say it again with each of many calls.
    pub fn traffic_class(&self, asked: c_int) -> Option<u8> {
        let class = u8::try_from(asked).ok();
        if class.is_none() && asked != TRAFFIC_CLASS_UNDEF {
            self.traffic_class_told.call_once(|| {
                log::warn(&format!("traffic class {asked} is ignored: 0 to 255 is possible, DSCP times 4"));
            });
        }
        class
    }

    /// Goes on with the connection from a device to a listener, or starts it with these settings; `None` while it is not made.
    pub fn connect(&self, config: &Config, device: usize, handle: &Handle) -> Result<Option<SendComm>> {
        let target = (device, handle.to_bytes());
        let mut attempts = self.attempts();
        attempts.retain(|_, attempt| attempt.asked_for.elapsed() < Self::FORGOTTEN);
        let mut attempt = match attempts.remove(&target) {
            Some(attempt) => attempt,
            None => {
                // The random token is for listeners only: a connection holds the token of its handle.
                let net = self.net.with(config.clone(), Token::random()?)?;
                Attempt { connecting: net.connect(device, handle, 0)?, asked_for: Instant::now() }
            }
        };
        let made = attempt.connecting.poll()?;
        if made.is_none() {
            attempts.insert(target, Attempt { asked_for: Instant::now(), ..attempt });
        }
        Ok(made)
    }

    fn attempts(&self) -> MutexGuard<'_, HashMap<Target, Attempt>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As NCCL's own transports say it: `[0]eth0:10.0.0.1<0>`.
fn describe(interfaces: &[Interface]) -> String {
    let each =
        |(number, interface): (usize, &Interface)| format!("[{number}]{}:{}<0>", interface.name, interface.address);
    interfaces.iter().enumerate().map(each).collect::<Vec<_>>().join(" ")
}
