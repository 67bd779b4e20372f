//! Selecting the largest elements of tensors in this process's memory.

use crate::failure::Failure;
use busbw_compress::{Bf16, Bits, F16, F32, F64, Format, Selection};
use bytemuck::{NoUninit, cast_slice};
use pyo3::types::PyByteArray;
use pyo3::{Bound, FromPyObject, PyResult, Python, pyfunction};
use std::num::NonZeroUsize;

/// Indices (int64) and values, as bytes that a tensor can be made of without a copy.
type Taken<'py> = (Bound<'py, PyByteArray>, Bound<'py, PyByteArray>);

/// Selects the `k` elements of largest magnitude of a contiguous tensor, in the order in which they stand. Of equal
/// magnitudes the first are taken; NaN is larger than infinity.
///
/// `tensor` is the address of its first element, their number, and their dtype (`float16`, `bfloat16`, `float32`,
/// `float64`). They must stay there unchanged until the call returns: the caller answers for that.
///
/// Raises `ValueError` where `k` exceeds the number of elements, or for another dtype.
#[pyfunction]
pub fn topk(py: Python<'_>, tensor: Tensor, k: usize, threads: NonZeroUsize) -> PyResult<Taken<'_>> {
    struct TopK(usize, NonZeroUsize);
    impl Select for TopK {
        fn select<F: Format>(self, bits: &[F::Bits]) -> Result<Selection<F::Bits>, Failure> {
            busbw_compress::topk::<F>(bits, self.0, self.1).map_err(|error| Failure::value(error.to_string()))
        }
    }
    select(py, &tensor, TopK(k, threads))
}

/// Selects the elements of a contiguous tensor whose magnitude is larger than `threshold`, in the order in which they
/// stand. NaN is larger than infinity. `tensor` is as for `topk`.
///
/// Raises `ValueError` for a threshold that is negative or NaN, or for another dtype.
#[pyfunction]
pub fn select_above(py: Python<'_>, tensor: Tensor, threshold: f64, threads: NonZeroUsize) -> PyResult<Taken<'_>> {
    struct Above(f64, NonZeroUsize);
    impl Select for Above {
        fn select<F: Format>(self, bits: &[F::Bits]) -> Result<Selection<F::Bits>, Failure> {
            Ok(busbw_compress::select_above::<F>(bits, F::floor(self.0), self.1))
        }
    }
    if threshold.is_nan() || threshold < 0.0 {
        return Err(Failure::value(format!("threshold {threshold}: is no magnitude; give 0 or more")).into());
    }
    select(py, &tensor, Above(threshold, threads))
}

/// A selection, of elements of any format.
trait Select: Send {
    fn select<F: Format>(self, bits: &[F::Bits]) -> Result<Selection<F::Bits>, Failure>;
}

/// Where a tensor is, and what it is of; a tuple in Python.
#[derive(Debug, FromPyObject)]
pub struct Tensor(usize, usize, String);

fn select<'py>(py: Python<'py>, tensor: &Tensor, how: impl Select) -> PyResult<Taken<'py>> {
    match tensor.2.as_str() {
        "float16" => select_of::<F16>(py, tensor, how),
        "bfloat16" => select_of::<Bf16>(py, tensor, how),
        "float32" => select_of::<F32>(py, tensor, how),
        "float64" => select_of::<F64>(py, tensor, how),
        other => {
            let known = "float16, bfloat16, float32 and float64 are selected from";
            Err(Failure::value(format!("dtype {other}: {known}")).into())
        }
    }
}

fn select_of<'py, F: Format<Bits: NoUninit>>(
    py: Python<'py>,
    tensor: &Tensor,
    how: impl Select,
) -> PyResult<Taken<'py>> {
    let taken = py.detach(|| how.select::<F>(tensor.elements::<F::Bits>()?))?;
    Ok((PyByteArray::new(py, cast_slice(&taken.indices)), PyByteArray::new(py, cast_slice(&taken.values))))
}

impl Tensor {
    fn elements<B: Bits>(&self) -> Result<&[B], Failure> {
        let Tensor(address, elements, dtype) = self;
        if *elements == 0 {
            return Ok(&[]);
        }
        let pointer = *address as *const B;
        if pointer.is_null() || !pointer.is_aligned() || *elements > isize::MAX as usize / size_of::<B>() {
            return Err(Failure::value(format!("{elements} {dtype} at {address:#x}: is no tensor")));
        }
        // SAFETY: aligned and not null, as checked; that so many elements are there, and stay unchanged, is what the
        // functions of this module ask of their callers (`busbw.compress` holds the tensor). Any bits are a `B`.
        Ok(unsafe { std::slice::from_raw_parts(pointer, *elements) })
    }
}
