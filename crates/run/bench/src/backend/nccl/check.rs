//! Checks on the GPU: the kernels of `check.cu`, compiled for the GPU that is there.

use crate::Result;
use crate::backend::nccl::failed;
use crate::verify::{BLOCK, OnDevice, Part, STARTS, Stream as Kind, Tables};
use busbw_collectives::{Data, Room};
use busbw_gpu::cuda::{DeviceMemory, Function, Module, PinnedMemory, Stream};
use busbw_gpu::nvrtc::Nvrtc;
use busbw_model::Datatype;
use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::Arc;

/// The kernels' source.
const SOURCE: &str = include_str!("check.cu");
/// Threads of a thread block: four elements of a block of data each.
const THREADS: u32 = 256;
/// Thread blocks for each multiprocessor: enough to keep its memory busy.
const BLOCKS_PER_PROCESSOR: u32 = 8;

/// The kernels, with the tables of a sweep.
pub struct Checker {
    stream: Arc<Stream>,
    fill: Function,
    count: Function,
    tables: Option<Loaded>,
    counter: DeviceMemory,
    counted: PinnedMemory,
}

/// Tables in the GPU's memory.
struct Loaded {
    datatype: Datatype,
    copied: DeviceMemory,
    given: DeviceMemory,
    reduced: DeviceMemory,
    bounds: Option<DeviceMemory>,
}

/// Compiles the kernels for a GPU of this compute capability.
pub fn compile(nvrtc: &Nvrtc, capability: (i32, i32)) -> std::result::Result<Vec<u8>, String> {
    let target = nvrtc.target(capability).ok_or_else(|| {
        let (major, minor) = nvrtc.version();
        format!("NVRTC {major}.{minor} does not know compute capability {}.{}", capability.0, capability.1)
    })?;
    let source = CString::new(SOURCE).map_err(|_| "the kernels' source has a 0 in it".to_string())?;
    let defined = [("BLOCK", BLOCK as u64), ("STARTS", STARTS as u64)];
    nvrtc.compile(&source, target, &defined).map_err(|error| error.to_string())
}

impl Checker {
    /// Loads what [`compile`] made on the stream's GPU. Kernels run in the stream.
    pub fn new(stream: &Arc<Stream>, code: &[u8]) -> busbw_gpu::Result<Self> {
        let module = Module::load(stream.gpu(), code)?;
        let function = |name: &CStr| module.function(name);
        Ok(Checker {
            fill: function(c"busbw_fill")?,
            count: function(c"busbw_count_wrong")?,
            tables: None,
            counter: DeviceMemory::new(stream.gpu(), size_of::<u64>())?,
            counted: PinnedMemory::new(stream.gpu(), size_of::<u64>())?,
            stream: Arc::clone(stream),
        })
    }

    fn tables(&self) -> Result<&Loaded> {
        self.tables.as_ref().ok_or_else(|| crate::Error::Job("the data of checks were not loaded".into()))
    }

    fn blocks(&self, part: Part) -> u32 {
        let blocks = (part.start % BLOCK + part.count).div_ceil(BLOCK);
        let most = BLOCKS_PER_PROCESSOR * self.stream.gpu().device().processors.max(1).unsigned_abs();
        u32::try_from(blocks).map_or(most, |blocks| blocks.min(most)).max(1)
    }

    fn fill_part(&self, part: Part, repetition: u64, to: Room) -> Result<()> {
        let tables = self.tables()?;
        let element = tables.datatype.size() as usize;
        let address = to.as_ptr() as u64;
        let Some(table) = tables.of(part.stream) else {
            // SAFETY: the room has the bytes.
            return unsafe { self.stream.zero(address, to.len()) }.map_err(failed);
        };
        let mut arguments = Arguments {
            memory: address,
            table: table.address(),
            bounds: 0,
            element: element as c_int,
            kind: 0,
            start: part.start as u64,
            count: part.count as u64,
            repetition,
            source: part.stream.source(),
            counter: 0,
        };
        // SAFETY: the parameters of busbw_fill in their order; the room is as long as the part.
        unsafe { self.fill.launch(&self.stream, self.blocks(part), THREADS, &mut arguments.of_fill()) }.map_err(failed)
    }

    fn count_part(&self, part: Part, repetition: u64, from: Data) -> Result<()> {
        let tables = self.tables()?;
        let bounds = tables.bounds.as_ref().filter(|_| part.stream == Kind::Reduced);
        let mut arguments = Arguments {
            memory: from.as_ptr() as u64,
            table: tables.of(part.stream).map_or(0, DeviceMemory::address),
            bounds: bounds.map_or(0, DeviceMemory::address),
            element: tables.datatype.size() as c_int,
            kind: kind(tables.datatype),
            start: part.start as u64,
            count: part.count as u64,
            repetition,
            source: part.stream.source(),
            counter: self.counter.address(),
        };
        // SAFETY: the parameters of busbw_count_wrong in their order; the data are as long as the part.
        unsafe { self.count.launch(&self.stream, self.blocks(part), THREADS, &mut arguments.of_count()) }
            .map_err(failed)
    }
}

impl Loaded {
    /// `None` for zeros.
    fn of(&self, stream: Kind) -> Option<&DeviceMemory> {
        match stream {
            Kind::From(_) => Some(&self.copied),
            Kind::Given => Some(&self.given),
            Kind::Reduced => Some(&self.reduced),
            Kind::Zero => None,
        }
    }
}

/// The parameters of both kernels.
struct Arguments {
    memory: u64,
    table: u64,
    bounds: u64,
    element: c_int,
    kind: c_int,
    start: u64,
    count: u64,
    repetition: u64,
    source: u64,
    counter: u64,
}

impl Arguments {
    fn of_fill(&mut self) -> [*mut c_void; 7] {
        [
            (&raw mut self.memory).cast(),
            (&raw mut self.table).cast(),
            (&raw mut self.element).cast(),
            (&raw mut self.start).cast(),
            (&raw mut self.count).cast(),
            (&raw mut self.repetition).cast(),
            (&raw mut self.source).cast(),
        ]
    }

    fn of_count(&mut self) -> [*mut c_void; 10] {
        [
            (&raw mut self.memory).cast(),
            (&raw mut self.table).cast(),
            (&raw mut self.bounds).cast(),
            (&raw mut self.element).cast(),
            (&raw mut self.kind).cast(),
            (&raw mut self.start).cast(),
            (&raw mut self.count).cast(),
            (&raw mut self.repetition).cast(),
            (&raw mut self.source).cast(),
            (&raw mut self.counter).cast(),
        ]
    }
}

/// The kernels' number of a floating-point type; -1 for integers.
fn kind(datatype: Datatype) -> c_int {
    match datatype {
        Datatype::Half => 0,
        Datatype::Float => 1,
        Datatype::Double => 2,
        Datatype::Bfloat16 => 3,
        Datatype::F8e4m3 => 4,
        Datatype::F8e5m2 => 5,
        _ => -1,
    }
}

impl OnDevice for Checker {
    fn load(&mut self, tables: &Tables<'_>) -> Result<()> {
        let upload = |bytes: &[u8]| DeviceMemory::of(&self.stream, bytes).map_err(failed);
        let bounds: Vec<u8> = tables.bounds.iter().flat_map(|bound| bound.to_le_bytes()).collect();
        self.tables = Some(Loaded {
            datatype: tables.datatype,
            copied: upload(tables.copied)?,
            given: upload(tables.given)?,
            reduced: upload(tables.reduced)?,
            bounds: (!bounds.is_empty()).then(|| upload(&bounds)).transpose()?,
        });
        Ok(())
    }

    fn fill(&mut self, parts: &[Part], repetition: u64, to: Room) -> Result<()> {
        let element = self.tables()?.datatype.size() as usize;
        let mut at = 0;
        for part in parts.iter().filter(|part| part.count > 0) {
            self.fill_part(*part, repetition, to.skip(at).take(part.count * element))?;
            at += part.count * element;
        }
        Ok(())
    }

    fn count_wrong(&mut self, parts: &[Part], repetition: u64, from: Data) -> Result<u64> {
        let (element, mut at) = (self.tables()?.datatype.size() as usize, 0);
        // SAFETY: the counter is the checker's own; so is the memory that it is copied to, until the wait is over.
        unsafe { self.stream.zero(self.counter.address(), self.counter.len()) }.map_err(failed)?;
        for part in parts.iter().filter(|part| part.count > 0) {
            self.count_part(*part, repetition, from.skip(at).take(part.count * element))?;
            at += part.count * element;
        }
        // SAFETY: as above.
        unsafe { self.stream.copy_out(self.counter.address(), self.counted.bytes_mut()) }.map_err(failed)?;
        self.stream.wait().map_err(failed)?;
        let counted = self.counted.bytes().first_chunk();
        Ok(counted.map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use busbw_gpu::nvrtc::Target;
    use std::io::Write as _;

    /// The real compiler needs no GPU: where it is, it takes the kernels for every GPU that it knows.
    #[test]
    fn the_kernels_compile_for_every_gpu() {
        let nvrtc = match Nvrtc::open(&|name| std::env::var(name).ok()) {
            Ok(nvrtc) => nvrtc,
            Err(why) => {
                // Past the capture of test output, because a skipped test passes. A lost message is no reason to fail.
                let _ = writeln!(std::io::stderr(), "skipped the_kernels_compile_for_every_gpu: {why}");
                return;
            }
        };
        let newest = *nvrtc.architectures().last().expect("some GPU");
        for architecture in nvrtc.architectures() {
            let capability = (architecture / 10, architecture % 10);
            assert_eq!(nvrtc.target(capability), Some(Target::Cubin(*architecture)));
            let code = compile(&nvrtc, capability).unwrap_or_else(|error| panic!("sm_{architecture}: {error}"));
            assert!(code.starts_with(b"\x7fELF"), "sm_{architecture}");
        }
        // A GPU that is newer than the compiler gets PTX.
        let code = compile(&nvrtc, (newest / 10 + 1, 0)).expect("PTX");
        let text = String::from_utf8_lossy(&code);
        assert!(text.contains(".entry busbw_fill(") && text.contains(&format!(".target sm_{newest}")), "{text}");
        assert!(compile(&nvrtc, (3, 0)).unwrap_err().contains("does not know compute capability 3.0"));
    }
}
