//! The programs of nccl-tests, by the names that a process can be called.

use busbw_model::Collective;

/// The collective that a program of nccl-tests' name measures: `all_reduce_perf`, also with a folder before and a
/// suffix behind (`build/all_reduce_perf_mpi`). `None` for any other name.
///
/// ```
/// use busbw_model::Collective;
/// assert_eq!(busbw_bench::flags::program("/opt/bin/sendrecv_perf_mpi"), Some(Collective::SendRecv));
/// assert_eq!(busbw_bench::flags::program("busbw"), None);
/// ```
pub fn program(argv0: &str) -> Option<Collective> {
    let name = argv0.rsplit('/').next()?;
    let (name, _suffix) = name.split_once("_perf")?;
    Collective::ALL.into_iter().find(|collective| collective.name() == name)
}

/// The program of nccl-tests that a process was called as: its path and its collective. These programs take flags only, so that
/// one which is started with `bench` is a rank that another has started: it is busbw, whatever its file is called.
pub fn called_program(argv: &[String]) -> Option<(&str, Collective)> {
    let (path, words) = argv.split_first()?;
    let is_rank = words.first().is_some_and(|word| word == "bench");
    program(path).filter(|_| !is_rank).map(|collective| (path.as_str(), collective))
}
