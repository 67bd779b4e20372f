//! busbw from end to end. The folder says what a test needs: here, nothing but files of the repository (`make check`);
//! in `here`, processes of this host (`make test`); in `labs`, hosts and nodes and devices of a lab (`make test-all`).

mod accelerate;
mod accuracy;
mod advise;
mod bad_input;
mod check;
mod compare;
mod explain;
mod facts;
mod fleet;
mod gallery;
mod grammar;
mod house;
mod outputs;
mod predict;
mod rules;
mod simulate;
mod verdict;
mod wings;

mod here {
    pub mod bench_faults;
    pub mod bench_launchers;
    mod bench_links;
    mod bench_nccl;
    mod bench_readers;
    mod check;
    pub mod link;
    pub mod monitor;
    mod plugin_check;
    mod profile;
    mod profile_attach;
    mod prometheus;
    mod standard_output;
    mod statuses;
    mod terminals;
    pub mod tune;
    mod watch;
}

mod labs {
    mod bench_faults;
    mod bench_launchers;
    mod check;
    mod doctor;
    mod fleet;
    mod guest;
    mod link;
    mod monitor;
    mod net_plugin_faults;
    mod profile;
    mod slurm_health;
    mod strangers;
    mod tune;
    mod walks;
    mod watch;
}

mod support {
    pub mod command;
    pub mod fakes;
    pub mod guest;
    pub mod lab;
    #[allow(dead_code, reason = "the plugin's own tests use more of it")]
    pub mod plugin;
    pub mod process;
    pub mod published;
    #[allow(dead_code, reason = "other tests use more of it")]
    pub mod recorder;
    pub mod script;
    pub mod shared;
    pub mod skip;
    pub mod table;
    pub mod terminal;
    pub mod tree;
}
