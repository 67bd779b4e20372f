//! What a table measured and over how many ranks, where the program does not say.

use super::{HEADER, one, read_lines};
use busbw_model::Collective;

#[test]
fn inference_of_collective_and_ranks() {
    use Collective::*;
    // redop, root, count, algbw, busbw of a size of 1 GiB of float
    let cases = [
        ("sum", "-1", 268_435_456, 50.32, 96.45, Some(AllReduce), Some(24)),
        ("sum", "-1", 268_435_456, 15.12, 15.12, Some(AllReduce), Some(2)),
        ("sum", "-1", 33_554_432, 100.0, 87.5, Some(ReduceScatter), Some(8)),
        ("sum", "-1", 134_217_728, 100.0, 50.0, Some(ReduceScatter), Some(2)),
        ("sum", "0", 268_435_456, 100.0, 100.0, Some(Reduce), None),
        ("none", "0", 268_435_456, 100.0, 100.0, Some(Broadcast), None),
        ("none", "-1", 268_435_456, 100.0, 100.0, Some(SendRecv), None),
        ("none", "-1", 33_554_432, 100.0, 87.5, Some(AllGather), Some(8)),
        ("none", "3", 33_554_432, 100.0, 87.5, None, Some(8)),
        // The ratio leaves several numbers of ranks: 1.98 is that of 75 to 200 ranks within rounding.
        ("sum", "-1", 268_435_456, 1.0, 1.98, Some(AllReduce), None),
        // Too slow for a ratio, no device list: open.
        ("sum", "-1", 268_435_456, 0.01, 0.02, None, None),
    ];
    for (redop, root, count, algbw, busbw, collective, nranks) in cases {
        let time = f64::from(1 << 30) / algbw / 1e3;
        let half = format!("{time:.2} {algbw:.2} {busbw:.2} 0");
        let table = one(&format!("{HEADER}\n1073741824 {count} float {redop} {root} {half} {half}"));
        assert_eq!((table.collective, table.nranks), (collective, nranks), "{redop} {root} {algbw} {busbw}");
    }
}

/// What only moves data is not checked in place.
#[test]
fn a_check_that_is_left_out_tells_what_moves_data() {
    let cases = [
        ("sum", 268_435_456, 100.0, Some(Collective::SendRecv), None),
        ("none", 33_554_432, 87.5, Some(Collective::AllToAll), Some(8)),
    ];
    for (redop, count, busbw, collective, nranks) in cases {
        let half = format!("10737.42 100.0 {busbw}");
        let table = one(&format!("{HEADER}\n1073741824 {count} float {redop} -1 {half} 0 {half} N/A"));
        assert_eq!((table.collective, table.nranks), (collective, nranks), "{redop}");
    }
}

#[test]
fn a_command_line_names_the_collective_unless_the_rows_deny_it() {
    let gathered = "1048576 65536 float none -1 120.50 8.70 6.53 0 119.80 8.75 6.56 N/A";
    let cases = [
        ("+ srun /opt/nccl-tests/build/alltoall_perf -b 1M", Some(Collective::AllToAll)),
        ("$ mpirun -np 4 ./all_gather_perf -b 8", Some(Collective::AllToAll)),
    ];
    for (command, collective) in cases {
        assert_eq!(one(&format!("{command}\n{HEADER}\n{gathered}")).collective, collective, "{command}");
    }
    let gathered = "1048576 65536 float none -1 120.50 8.70 6.53 N/A 119.80 8.75 6.56 N/A";
    let cases = [
        ("$ mpirun -np 4 ./all_gather_perf -b 8", Some(Collective::AllGather)),
        ("+ srun /opt/nccl-tests/build/alltoall_perf -b 1M", Some(Collective::AllToAll)),
        ("$ mpirun -np 4 ./all_reduce_perf -b 8", None),
        ("$ for t in all_gather_perf alltoall_perf; do", None),
        ("$ ib_write_perf", None),
    ];
    for (command, collective) in cases {
        assert_eq!(one(&format!("{command}\n{HEADER}\n{gathered}")).collective, collective, "{command}");
    }
    // The shell's line has no launcher's label, the table has.
    let (tables, _) = read_lines([("", cases[0].0), ("1,0", HEADER), ("1,0", gathered)]);
    assert_eq!(tables[0].collective, Some(Collective::AllGather));
}

#[test]
fn split_groups_count_the_ranks_of_one_group() {
    let devices: String = (0..8)
        .map(|rank| {
            format!(
                "#  Rank {rank:2} Group {:2} Pid  {rank} on      n{} device {rank:2} [0000:4e:00] NVIDIA H100\n",
                rank % 2,
                rank / 4
            )
        })
        .collect();
    let table = one(&format!("# Using devices\n{devices}#\n{HEADER}\n"));
    assert_eq!((table.nranks, table.devices.len(), table.rows.len()), (Some(4), 8, 0));
    assert_eq!(table.hosts(), ["n0", "n1"]);
    // A list with gaps is an excerpt.
    let excerpt: String =
        devices.lines().filter(|line| !line.contains("Rank  3")).map(|line| format!("{line}\n")).collect();
    assert_eq!(one(&excerpt).nranks, None);
}

#[test]
fn every_gpu_may_be_device_0() {
    let devices: String =
        (0..4).map(|rank| format!("#   Rank  {rank} Pid   {rank} on host device  0 [0x01] T4\n")).collect();
    let table = one(&devices);
    assert_eq!((table.nranks, table.devices[3].device, &*table.devices[3].bus_id), (Some(4), 0, "0x01"));
}
