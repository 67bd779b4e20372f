//! What a machine says of itself holds whatever a table of some time shows.

use super::answer::Answer;
use super::held::Held;
use super::inputs::{self, Input};

/// What a machine says of a fault, in the words of the program that says it.
fn evidence() -> Vec<Input> {
    let ours = [
        (
            "dmesg-xid-74",
            "[  812.000000] NVRM: Xid (PCI:0000:1b:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)\n",
        ),
        (
            "dmesg-xid-79-iso",
            "2026-11-23T10:00:00,123456+00:00 NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n",
        ),
        (
            "dmesg-mlx5-fatal",
            "[81234.112233] mlx5_core 0000:5e:00.0: poll_health:825:(pid 0): Fatal error 1 detected\n",
        ),
        (
            "dmesg-sxid",
            "[ 1234.567890] nvidia-nvswitch3: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n",
        ),
        (
            "dmesg-link-flaps",
            "[80000.100000] mlx5_core 0000:5e:00.0 ens1f0np0: Link down\n[80100.100000] mlx5_core 0000:5e:00.0 ens1f0np0: Link down\n[80200.100000] mlx5_core 0000:5e:00.0 ens1f0np0: Link down\n[80300.100000] mlx5_core 0000:5e:00.0 ens1f0np0: Link down\n",
        ),
        (
            "gpu-recovery",
            "GPU 00000000:1B:00.0\n    Product Name                          : NVIDIA H100 80GB HBM3\n    GPU Recovery Action                   : Drain P2P\n",
        ),
        (
            "ibstat-down",
            "CA 'mlx5_0'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tFirmware version: 28.39.1002\n\tPort 1:\n\t\tState: Down\n\t\tPhysical state: Disabled\n\t\tRate: 10\n\t\tBase lid: 65535\n\t\tLink layer: InfiniBand\n",
        ),
        (
            "nvlink-of-one-inactive",
            "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-00000000-0000-0000-0000-000000000001)\n\t Link 0: <inactive>\n\t Link 1: <inactive>\n\t Link 2: <inactive>\n\t Link 3: <inactive>\nGPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-00000000-0000-0000-0000-000000000002)\n\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n\t Link 2: 25 GB/s\n\t Link 3: 25 GB/s\n",
        ),
    ];
    let files = [
        "dmesg-xid-79.txt",
        "dmesg-xid-48.txt",
        "nvlinks-inactive.txt",
        "hosts/down_all.json",
        "hosts/init.json",
        "hosts/nogid.json",
    ];
    let files = files.map(|name| inputs::file(&format!("reproductions/{name}")));
    ours.map(|(name, text)| Input::new(name, text)).into_iter().chain(files).collect()
}

/// Tables at full speed.
fn good_tables() -> Vec<Input> {
    let good =
        ["good-table-16-ranks.txt", "gb10-pair-good.log"].map(|name| inputs::file(&format!("reproductions/{name}")));
    good.into_iter().chain(inputs::tables("good").into_iter().step_by(3)).collect()
}

#[test]
fn evidence_of_a_machine_is_an_alarm() {
    Held::of_each("evidence of a machine is an alarm", evidence(), Answer::is_alarm);
}

#[test]
fn evidence_of_a_machine_stays_beside_a_good_table() {
    let mut held = Held::new("evidence of a machine stays beside a good table");
    for fault in evidence() {
        let alone = Answer::to(&fault);
        for table in good_tables() {
            let file = &fault.files[0];
            let beside = Answer::to(&table.beside(&file.name, &file.text));
            let stays = |alone: &Answer, beside: &Answer| {
                beside.is_alarm() && alone.first().is_some_and(|code| beside.loud().contains(&code))
            };
            held.compare((&fault, &alone), &format!("beside {}", table.name), &beside, stays);
        }
    }
    held.end();
}
