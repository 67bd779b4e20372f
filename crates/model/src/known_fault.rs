//! Known faults of programs: which versions have them, and what `busbw advise` answers.

use crate::version::Version;
use schemars::JsonSchema;
use serde::Serialize;

named! {
    /// A program, library, driver or kernel with a table of known faults.
    pub enum Component {
        /// NVIDIA's NCCL.
        Nccl = "nccl",
        /// AMD's RCCL.
        Rccl = "rccl",
        /// The network plugin for libfabric.
        OfiPlugin = "aws-ofi-nccl",
        /// nccl-tests.
        NcclTests = "nccl-tests",
        /// PyTorch.
        Pytorch = "pytorch",
        /// The driver of NVIDIA's GPUs.
        Driver = "nvidia-driver",
        /// CUDA.
        Cuda = "cuda",
        /// Firmware of NICs, switches and GPUs.
        Firmware = "firmware",
        /// Open MPI.
        OpenMpi = "open-mpi",
        /// UCX.
        Ucx = "ucx",
        /// libfabric.
        Libfabric = "libfabric",
        /// Linux.
        Kernel = "kernel",
        /// NVSHMEM.
        Nvshmem = "nvshmem",
        /// UCC.
        Ucc = "ucc",
        /// PMIx.
        Pmix = "pmix",
        /// PRRTE, which starts Open MPI's ranks.
        Prrte = "prrte",
        /// GDRCopy.
        GdrCopy = "gdrcopy",
        /// ROCm.
        Rocm = "rocm",
        /// vLLM.
        Vllm = "vllm",
        /// SGLang.
        Sglang = "sglang",
        /// DeepSpeed.
        DeepSpeed = "deepspeed",
        /// Megatron Core.
        Megatron = "megatron-core",
        /// FlashInfer.
        FlashInfer = "flashinfer",
        /// TensorRT-LLM.
        TrtLlm = "tensorrt-llm",
        /// DeepEP.
        DeepEp = "deepep",
        /// NIXL.
        Nixl = "nixl",
        /// Transformer Engine.
        TransformerEngine = "transformer-engine",
        /// Ray.
        Ray = "ray",
        /// JAX and its XLA.
        Jax = "jax",
        /// TRL.
        Trl = "trl",
        /// Mooncake.
        Mooncake = "mooncake",
        /// AITER.
        Aiter = "aiter",
        /// CuPy.
        Cupy = "cupy",
        /// Horovod.
        Horovod = "horovod",
        /// PyTorch Lightning.
        Lightning = "lightning",
        /// Accelerate.
        Accelerate = "accelerate",
        /// NeMo.
        NeMo = "nemo",
        /// NeMo RL.
        NeMoRl = "nemo-rl",
        /// DeepGEMM.
        DeepGemm = "deepgemm",
        /// UCCL.
        Uccl = "uccl",
        /// Dynamo, which serves models on several engines.
        Dynamo = "dynamo",
        /// LMCache.
        LmCache = "lmcache",
        /// verl.
        Verl = "verl",
        /// torchcomms and its NCCLX.
        TorchComms = "torchcomms",
        /// MORI, AMD's transport for experts and KV caches.
        Mori = "mori",
        /// Slurm.
        Slurm = "slurm",
        /// MPICH.
        Mpich = "mpich",
        /// Transformers and its Trainer.
        Transformers = "transformers",
        /// Megatron Bridge.
        MegatronBridge = "megatron-bridge",
        /// FlashAttention.
        FlashAttention = "flash-attention",
        /// torchtitan.
        TorchTitan = "torchtitan",
        /// NVIDIA's container toolkit and libnvidia-container.
        ContainerToolkit = "nvidia-container-toolkit",
        /// NVIDIA's GPU Operator for Kubernetes.
        GpuOperator = "gpu-operator",
        /// NVIDIA's device plugin for Kubernetes.
        DevicePlugin = "k8s-device-plugin",
        /// NVIDIA's driver for dynamic resources of Kubernetes (ComputeDomains).
        DraDriver = "k8s-dra-driver-gpu",
        /// enroot.
        Enroot = "enroot",
        /// pyxis, Slurm's plugin for containers.
        Pyxis = "pyxis",
    }
    /// The name of its table: `rules/known-faults/nccl.toml`.
    name
}

impl Component {
    /// As text writes it.
    pub fn title(self) -> &'static str {
        match self {
            Component::Nccl => "NCCL",
            Component::Rccl => "RCCL",
            Component::OfiPlugin => "aws-ofi-nccl",
            Component::NcclTests => "nccl-tests",
            Component::Pytorch => "PyTorch",
            Component::Driver => "NVIDIA driver",
            Component::Cuda => "CUDA",
            Component::Firmware => "Firmware",
            Component::OpenMpi => "Open MPI",
            Component::Ucx => "UCX",
            Component::Libfabric => "libfabric",
            Component::Kernel => "Linux",
            Component::Nvshmem => "NVSHMEM",
            Component::Ucc => "UCC",
            Component::Pmix => "PMIx",
            Component::Prrte => "PRRTE",
            Component::GdrCopy => "GDRCopy",
            Component::Rocm => "ROCm",
            Component::Vllm => "vLLM",
            Component::Sglang => "SGLang",
            Component::DeepSpeed => "DeepSpeed",
            Component::Megatron => "Megatron Core",
            Component::FlashInfer => "FlashInfer",
            Component::TrtLlm => "TensorRT-LLM",
            Component::DeepEp => "DeepEP",
            Component::Nixl => "NIXL",
            Component::TransformerEngine => "Transformer Engine",
            Component::Ray => "Ray",
            Component::Jax => "JAX",
            Component::Trl => "TRL",
            Component::Mooncake => "Mooncake",
            Component::Aiter => "AITER",
            Component::Cupy => "CuPy",
            Component::Horovod => "Horovod",
            Component::Lightning => "PyTorch Lightning",
            Component::Accelerate => "Accelerate",
            Component::NeMo => "NeMo",
            Component::NeMoRl => "NeMo RL",
            Component::DeepGemm => "DeepGEMM",
            Component::Uccl => "UCCL",
            Component::Dynamo => "Dynamo",
            Component::LmCache => "LMCache",
            Component::Verl => "verl",
            Component::TorchComms => "torchcomms",
            Component::Mori => "MORI",
            Component::Slurm => "Slurm",
            Component::Mpich => "MPICH",
            Component::Transformers => "Transformers",
            Component::MegatronBridge => "Megatron Bridge",
            Component::FlashAttention => "FlashAttention",
            Component::TorchTitan => "torchtitan",
            Component::ContainerToolkit => "NVIDIA Container Toolkit",
            Component::GpuOperator => "GPU Operator",
            Component::DevicePlugin => "NVIDIA device plugin",
            Component::DraDriver => "NVIDIA DRA driver",
            Component::Enroot => "enroot",
            Component::Pyxis => "pyxis",
        }
    }

    /// The component of a name; `driver` and `torch` are understood as well.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase().replace('_', "-");
        let name = match name.as_str() {
            "driver" => "nvidia-driver",
            "torch" => "pytorch",
            "linux" => "kernel",
            "openmpi" | "ompi" => "open-mpi",
            "trtllm" | "trt-llm" => "tensorrt-llm",
            "megatron" => "megatron-core",
            "jaxlib" => "jax",
            "pytorch-lightning" => "lightning",
            "amd-aiter" => "aiter",
            other => other,
        };
        Self::ALL.into_iter().find(|component| component.name() == name)
    }
}

named! {
    /// What a fault does to a job, the worst first.
    pub enum Consequence {
        /// Results are wrong, and nothing says so.
        WrongResults = "wrong results",
        /// Ranks wait for ever.
        Hang = "hang",
        /// A process ends by a signal or an abort.
        Crash = "crash",
        /// The run ends with an error at once.
        Refused = "refused",
        /// It works, slower than it could.
        Slow = "slow",
        /// Memory or handles are lost with time.
        Leak = "leak",
    }
    /// As the table writes it.
    name
}

impl Consequence {
    /// Whether a job is lost, or worse, by it without a word: what a version is chosen for.
    pub fn is_grave(self) -> bool {
        matches!(self, Consequence::WrongResults | Consequence::Hang)
    }

    /// Whether a run that it hits cannot be used.
    pub fn ends_a_run(self) -> bool {
        !matches!(self, Consequence::Slow | Consequence::Leak)
    }
}

named! {
    /// What is known of a fault here, the worst first.
    pub enum Exposure {
        /// Its text is in the input, and its version and conditions are there.
        HitYou = "hit you",
        /// The version has it, and all of its conditions are met.
        CanHitYou = "can hit you",
        /// The version has it; whether its conditions are met is not known.
        CannotKnow = "cannot know",
    }
    /// As text writes it.
    name
}

/// A version that a program printed, its own or another's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrintedVersion {
    /// Whose it is.
    pub component: Component,
    /// The version.
    pub version: Version,
}

/// What was known to judge by, and where it is from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KnownFact {
    /// What it is: `nccl`, `gpu`, `arch`.
    pub what: String,
    /// The values: `2.28.9`, `GB200`.
    pub values: Vec<String>,
}

/// A known fault of a version that is in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KnownFault {
    /// Its name in the table, for ever the same.
    pub id: String,
    /// Whose fault it is.
    pub component: Component,
    /// The version in use; where none is known, the newest that has it.
    pub version: Version,
    /// What is known of it here.
    pub exposure: Exposure,
    /// What happens, in one sentence.
    pub title: String,
    /// What it does to a job.
    pub consequence: Consequence,
    /// What was found in the run is what it shows as, or a text that a person wrote is like it.
    pub fits: bool,
    /// The versions that have it, in words: `2.28.3 to 2.28.9`.
    pub affected: String,
    /// The first releases without it, one for each branch that got the mend; empty where none is known.
    pub fixed: Vec<Version>,
    /// What helps until then.
    pub workaround: Option<String>,
    /// What the rest cannot say: what else it takes, who saw it.
    pub note: Option<String>,
    /// What would have to be known to tell whether it can hit: `feature: cuda-graphs`; empty where all is known.
    pub unknown: Vec<String>,
    /// Where it is read.
    pub source: Vec<String>,
}

/// The version to take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BestVersion {
    /// Of what.
    pub component: Component,
    /// The version in use.
    pub now: Version,
    /// The smallest change that leaves no known hang and no wrong results, or as few as there are.
    pub take: Version,
    /// Ids of the faults that it ends.
    pub ends: Vec<String>,
    /// Ids of faults that it has and the version in use has not.
    pub brings: Vec<String>,
    /// Ids of hangs and wrong results that it leaves.
    pub leaves: Vec<String>,
}

/// The answer of `busbw advise`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Advised {
    /// What was known to judge by.
    pub known: Vec<KnownFact>,
    /// Versions that are older or newer than all releases that the tables name: of these nothing is judged.
    pub not_covered: Vec<KnownFact>,
    /// The faults that the versions have: those that hit first, then what fits what was seen, then those that can hit; of each the worst first.
    pub faults: Vec<KnownFault>,
    /// For each component that has a hang or wrong results here and a release that helps.
    pub take: Vec<BestVersion>,
}

impl crate::answer::Answer for Advised {
    const SCHEMA: &'static str = "busbw.advise/1";
}

impl Advised {
    /// The faults of an exposure, the worst first.
    pub fn of(&self, exposure: Exposure) -> impl Iterator<Item = &KnownFault> {
        self.faults.iter().filter(move |fault| fault.exposure == exposure)
    }

    /// Whether any version is known: else there is nothing to look up.
    pub fn knows_a_version(&self) -> bool {
        self.known.iter().any(|fact| Component::from_name(&fact.what).is_some())
    }

    /// Whether the tables are about any version that is known: else no fault says nothing.
    pub fn is_judged(&self) -> bool {
        let outside = |fact: &&KnownFact| self.not_covered.contains(fact);
        let mut versions = self.known.iter().filter(|fact| Component::from_name(&fact.what).is_some());
        versions.any(|fact| !outside(&fact)) || self.faults.iter().any(|fault| fault.exposure != Exposure::CannotKnow)
    }

    /// Whether something hit, or a hang or wrong results can.
    pub fn is_grave(&self) -> bool {
        let grave = |fault: &KnownFault| {
            fault.exposure == Exposure::HitYou || fault.exposure == Exposure::CanHitYou && fault.consequence.is_grave()
        };
        self.faults.iter().any(grave)
    }
}
