//! The real NCCL, where it is: it needs no GPU to be found, opened and asked for its version.

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../tests/support/skip.rs"]
mod skip;

use busbw_gpu::Error;
use busbw_gpu::cuda::{Cuda, Vendor};
use busbw_gpu::nccl::{Feature, Nccl, Version};
use skip::Skip;

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[test]
fn nccl_has_every_function_of_its_version() {
    match Nccl::open(Vendor::Nvidia, None, &variable) {
        Ok(nccl) => {
            assert!(nccl.version() >= Version::OLDEST && nccl.path().is_absolute(), "{}", nccl.path().display());
            assert_eq!(nccl.needs("-R 2", Feature::SymmetricRegistration).is_ok(), nccl.version_code() >= 22700);
        }
        Err(why @ (Error::Missing { .. } | Error::Version { .. })) => Skip(why.to_string()).of_hardware(),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_machine_without_a_gpu_is_told_so_in_one_line() {
    match Cuda::open(&variable) {
        Ok(cuda) => assert!(!cuda.devices().unwrap().is_empty() && cuda.version().0 >= 11),
        Err(error) => {
            let line = error.to_string();
            assert!(!line.contains('\n') && line.contains("--backend nccl"), "{line}");
        }
    }
}
