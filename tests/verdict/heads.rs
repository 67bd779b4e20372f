//! What stands in front of a failure among other lines changes nothing: a head is known by its form, and need not stand before all lines of the log.

use super::answer::Answer;
use super::held::Held;
use super::inputs::Input;

/// Ordinary lines that have no head, above those that have one.
const ABOVE: &str = "\
Loading configuration from conf/train.yaml
Using 8 devices on 2 hosts
Model has 7.24 B parameters
Found checkpoint /ckpt/0, resuming
wandb: Tracking run with wandb version 0.17.0
Seed 42
";

const TRACEBACK: &str = "\
step 15 loss 2.350
Traceback (most recent call last):
  File \"/workspace/train.py\", line 212, in <module>
    main()
  File \"/workspace/train.py\", line 97, in step
    out = model(batch)
";

/// What launchers, libraries, the kernel and Python print of a failure, and one run that goes on.
const OUTPUTS: [(&str, &str); 9] = [
    ("of Python", "ValueError: expected input of shape [8, 1024], got [8, 1023]"),
    (
        "of memory",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which \
         1.20 GiB is free.",
    ),
    ("of srun", "step 15 loss 2.350\nsrun: error: n1: task 3: Killed"),
    (
        "of slurmstepd",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=8811.0. Some of the step tasks have been OOM Killed.",
    ),
    (
        "of UCX",
        "[n1:4242 :0:4242] Caught signal 11 (Segmentation fault: address not mapped to object at address (nil))",
    ),
    (
        "of NCCL",
        "n1:4242:4301 [0] misc/socket.cc:503 NCCL WARN socketStartConnect: Connect to 10.0.0.2<43891> failed : Connection refused",
    ),
    (
        "of PyTorch",
        "[rank1]:[E1126 10:00:00.904441103 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: \
         WorkNCCL(SeqNum=211, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) ran for 600007 milliseconds before timing out.",
    ),
    ("of the kernel", "NVRM: Xid (PCI:0000:3b:00): 79, pid=4242, name=python, GPU has fallen off the bus."),
    ("of no failure", "step 15 loss 2.350\nstep 16 loss 2.341"),
];

/// Heads of tools that pass on every line, which those of other tools may stand beside.
const CARRIERS: [&str; 19] = [
    "node12: ",
    "node12.cluster.local: ",
    "10.0.0.12: ",
    "(RayTrainWorker pid=4242, ip=10.0.0.3) ",
    "\u{1b}[36m(RayTrainWorker pid=4242, ip=10.0.0.3)\u{1b}[0m ",
    "(TrainActor(rank=3) pid=4242) ",
    "[pod/train-worker-0/pytorch] ",
    "[pod/train-worker-0/pytorch] 2026-11-26T10:00:00.123456789Z ",
    "trainer-1  | ",
    "trainer | ",
    "[rank: 3] ",
    "[Rank 3] ",
    "[worker-0] ",
    "[default3]:",
    "Nov 30 10:00:00 gpu-7 python3[4242]: ",
    "2026-11-30T10:00:00.123456+00:00 gpu-7 python3[4242]: ",
    "Nov 30 10:00:00 gpu-7 1a2b3c4d5e6f[812]: ",
    "2026-11-26T10:00:00.123456Z 01O ",
    "[2026-11-26T10:00:00.123456Z] 1a2b3c4d [rank=3] || ",
];

/// Heads of loggers. A traceback that one writes was caught.
const LOGGERS: [&str; 7] = [
    "time=\"2026-11-26T10:00:00Z\" level=error msg=\"",
    "E1126 10:00:00.123456    4242 runner.go:77] ",
    "2026-11-26 10:00:00.123 | ERROR    | __main__:main:12 - ",
    "2026-11-26 10:00:00,123 - runner - ERROR - ",
    "2026-11-26T10:00:00.123456Z ERROR text_generation_launcher: ",
    "2026-11-26T10:00:00.123Z\tERROR\trunner/main.go:77\t",
    "[2026-11-26 10:00:00,123][__main__][ERROR] - ",
];

fn input(name: &str, head: &str, lines: &str) -> Input {
    Input::new(name, ABOVE.to_string() + &lines.lines().map(|line| format!("{head}{line}\n")).collect::<String>())
}

#[test]
fn a_head_among_other_lines_changes_nothing() {
    let mut held = Held::new("a head in front of a failure changes nothing");
    for (name, output) in OUTPUTS {
        let whole = if name.starts_with("of Python") || name == "of memory" { TRACEBACK } else { "" };
        let output = format!("{whole}{output}");
        let bare = input(name, "", &output);
        let answer = Answer::to(&bare);
        let heads = CARRIERS.iter().chain(LOGGERS.iter().filter(|_| whole.is_empty()));
        for head in heads {
            held.compare((&bare, &answer), head, &Answer::to(&input(name, head, &output)), Answer::agrees_with);
        }
    }
    held.end();
}
