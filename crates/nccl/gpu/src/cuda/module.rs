//! Compiled kernels, and how they are started.

use super::api::Handle;
use super::{Context, Stream};
use crate::Result;
use std::ffi::{CStr, c_void};
use std::rc::Rc;

/// Compiled code, loaded on a GPU.
pub struct Module(Rc<Loaded>);

struct Loaded {
    gpu: Context,
    raw: Handle,
}

impl Module {
    /// Loads PTX that ends with 0, or a cubin.
    pub fn load(gpu: &Context, image: &[u8]) -> Result<Self> {
        gpu.make_current()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the image lives through the call, in which the driver copies it.
        let code = unsafe { (gpu.cuda().api.module_load)(&mut raw, image.as_ptr().cast()) };
        gpu.cuda().checked("cuModuleLoadData", code)?;
        Ok(Module(Rc::new(Loaded { gpu: gpu.clone(), raw })))
    }

    /// One of its kernels.
    pub fn function(&self, name: &CStr) -> Result<Function> {
        let mut raw = std::ptr::null_mut();
        let cuda = self.0.gpu.cuda();
        // SAFETY: the module lives, and the pointers are to values that live through the call.
        let code = unsafe { (cuda.api.module_function)(&mut raw, self.0.raw, name.as_ptr()) };
        cuda.checked("cuModuleGetFunction", code)?;
        Ok(Function { module: Rc::clone(&self.0), raw })
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        if self.gpu.make_current().is_ok() {
            // SAFETY: loaded once, unloaded once, when no function of it is left.
            unsafe { (self.gpu.cuda().api.module_unload)(self.raw) };
        }
    }
}

/// A kernel.
pub struct Function {
    module: Rc<Loaded>,
    raw: Handle,
}

impl Function {
    /// Queues the kernel with `blocks` blocks of `threads` threads.
    ///
    /// # Safety
    /// `arguments` point to values of the kernel's parameters, in their order, and what these point to fits the kernel.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        blocks: u32,
        threads: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        let gpu = &self.module.gpu;
        gpu.make_current()?;
        // SAFETY: the caller gives the arguments that the kernel declares, with valid memory behind its pointers.
        let code = unsafe {
            (gpu.cuda().api.launch)(
                self.raw,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream.raw(),
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        gpu.cuda().checked("cuLaunchKernel", code)
    }
}
