//! Outputs of nccl-tests from one process and from several, with MPI and without.

use super::*;

/// What a process prints above its rows: settings, and a device for each rank.
fn head(ranks: &[(u32, &str, u64)]) -> String {
    let device = |(rank, host, pid): &(u32, &str, u64)| {
        format!("#  Rank {rank:2} Group  0 Pid {pid:6} on {host:>10} device {rank:2} [0000:0f:00] NVIDIA H100\n")
    };
    settings() + &ranks.iter().map(device).collect::<String>()
}

fn settings() -> String {
    "# nThread 1 nGpus 2 minBytes 1048576 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n".into()
}

const COLUMNS: &str = "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n";
const ROW: &str = "  1073741824     268435456     float     sum      -1   5411.2  198.43  347.25      0   5403.9  198.70  347.72      0\n";
const END: &str = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 347.485\n#\n";

/// One process from its first line to its last.
fn whole(ranks: &[(u32, &str, u64)]) -> String {
    head(ranks) + COLUMNS + ROW + END
}

const A: [(u32, &str, u64); 2] = [(0, "gpu-a", 41), (1, "gpu-a", 41)];
const B: [(u32, &str, u64); 2] = [(0, "gpu-b", 77), (1, "gpu-b", 77)];
const LAUNCH: &str = "$ mpirun -np 2 -H gpu-a,gpu-b ./all_reduce_perf -b 1G -e 1G -g 2\n";

/// The severity of what is found in a text, first by the rule, then in the end.
fn told(text: &str) -> Option<Severity> {
    let run = busbw_ingest::read_bytes(&[("log", text.as_bytes())]).expect("text");
    let found = rule(&Case::new(&run)).first().map(|finding| finding.severity);
    let settled = crate::diagnose(&run).findings.into_iter().find(|f| f.code == Code::MpiLaunch);
    assert_eq!(settled.map(|finding| finding.severity), found, "a good end changes nothing:\n{text}");
    found
}

#[test]
fn every_process_with_a_rank_0_is_alone() {
    let lists = head(&A).replace(&settings(), "") + &head(&B).replace(&settings(), "");
    let interleaved = settings() + &settings() + &lists;
    let line_by_line = lists.lines().step_by(2).chain(lists.lines().skip(1).step_by(2)).collect::<Vec<_>>().join("\n");
    let rows = COLUMNS.to_string() + COLUMNS + ROW + ROW + END + END;
    let cases = [
        (interleaved.clone(), Severity::Warning),
        (interleaved.clone() + &rows, Severity::Warning),
        (LAUNCH.to_string() + &interleaved + &rows, Severity::Error),
        (settings() + &settings() + &line_by_line + "\n" + &rows, Severity::Warning),
        (settings() + &lists, Severity::Warning),
        (LAUNCH.to_string() + &whole(&A) + &whole(&B), Severity::Error),
        (head(&A) + &head(&B) + &rows, Severity::Warning),
        // One host, started twice at once.
        (
            settings() + &settings() + &head(&A)[settings().len()..] + &lists.replace("gpu-a", "gpu-c"),
            Severity::Warning,
        ),
    ];
    for (text, severity) in cases {
        assert_eq!(told(&text), Some(severity), "{text}");
    }
}

#[test]
fn the_number_of_the_process_may_be_missing() {
    let without_numbers = "# Using devices\n#   Rank  0 on gpu-a device  0 [0x00] Tesla M60\n#   Rank  0 on gpu-b device  0 [0x00] Tesla M60\n";
    assert_eq!(told(without_numbers), Some(Severity::Warning));
}

#[test]
fn programs_one_after_the_other_and_jobs_of_several_processes_are_ordinary() {
    let joint = [(0, "gpu-a", 41), (1, "gpu-a", 42), (2, "gpu-b", 77), (3, "gpu-b", 78)];
    let again = [(0, "gpu-a", 51), (1, "gpu-a", 52), (2, "gpu-b", 87), (3, "gpu-b", 88)];
    let same_host = [(0, "gpu-a", 99), (1, "gpu-a", 99)];
    let shell = |host: &str, text: String| text.lines().map(|line| format!("{host}: {line}\n")).collect::<String>();
    let cases = [
        whole(&joint),
        LAUNCH.to_string() + &whole(&joint) + &whole(&again),
        whole(&A) + &whole(&same_host),
        LAUNCH.to_string() + &whole(&A) + LAUNCH + &whole(&same_host),
        // Two machines, each with a run of its own.
        whole(&A) + &whole(&B),
        "$ mpirun -np 1 -H gpu-a ./all_reduce_perf -g 2\n".to_string() + &whole(&A) + &whole(&B),
        // The first run died after its list.
        head(&A) + "gpu-a: Test NCCL failure common.cu:958 'unhandled system error'\n" + &whole(&same_host),
        // A parallel shell: every node tests itself.
        shell("gpu-a", head(&A)) + &shell("gpu-b", head(&B)) + &shell("gpu-a", COLUMNS.to_string() + ROW + END),
        // Two jobs at once, in one file.
        head(&joint) + &head(&again) + COLUMNS + COLUMNS + ROW + ROW + END + END,
    ];
    for text in cases {
        let run = busbw_ingest::read_bytes(&[("log", text.as_bytes())]).expect("text");
        assert_eq!(rule(&Case::new(&run)), [], "{text}");
    }
}
