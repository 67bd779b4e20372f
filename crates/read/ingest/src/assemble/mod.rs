//! From facts to a run: blocks come in the order of the input, and at the end everything is put together.

mod anonymous;
mod asked;
mod communicators;
mod groups;
mod hosts;
mod link;
mod listed;
mod log;
mod shell;
mod speakers;
mod views;

use crate::facts::{BlockFacts, Event, Fact, FirstLine, HostLines, LastLine, MessageLine, NOBODY, SpeakerFact};
use crate::inspector::Samples;
use crate::nccl_log::LogMessage;
use crate::notes::Notes;
use crate::readers::Readers;
use crate::text::TextLine;
use crate::torch::{ProcessGroups, Recording, Ways, rank_of_path};
use anonymous::Anonymous;
use busbw_model::{Edge, EnvOrigin, FlightDump, Input, InputKind, Place, Problem, Run, SourceLine, Transport};
use communicators::{Parts, assemble, ring_places};
use log::{LogBuilder, Warned};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use shell::Shell;
use speakers::{PrintedHost, ProcessId, SpeakerId, Speakers};
use std::{collections::BTreeSet, hash::BuildHasher};
use views::Views;

/// More transports, or statements of hosts, only damage gives.
const MOST_TRANSPORTS: u16 = 1 << 14;
const MOST_TOLD: usize = 1 << 20;

/// Builds a [`Run`] from the facts of its inputs.
#[derive(Default)]
pub(crate) struct Assembler {
    run: Run,
    speakers: Speakers,
    views: Views,
    anonymous: Anonymous,
    log: LogBuilder,
    transports: Vec<Transport>,
    transport_ids: FxHashMap<(String, bool), u16>,
    ring_texts: FxHashMap<Place, Box<str>>,
    readers: Readers,
    samples: Samples,
    notes: Notes,
    /// What was said alike by the ranks of a host, in the current input.
    told: FxHashSet<u64>,
    /// Who told the driver's version last, and in which line: NCCL's own version follows, up to 2.2x without a name.
    driver_told: Option<(SpeakerId, u64)>,
    shell: Shell,
    /// What commands name as the run's, and where they start runs.
    named: BTreeSet<String>,
    started: Vec<Place>,
    process_groups: ProcessGroups,
    ways: Ways,
    /// The hosts of the current input, by name.
    printed: FxHashMap<Box<str>, PrintedHost>,
    /// By worker, of the current input.
    ids: Vec<Ids>,
    nccl_lines_before: u64,
}

/// What a worker's indices stand for.
#[derive(Default)]
struct Ids {
    /// Most threads say nothing that is kept; they get an id when they do.
    speakers: Vec<BlockSpeaker>,
    /// None where there are more than fit.
    transports: Vec<Option<u16>>,
    streams: Vec<Box<str>>,
    warnings: Vec<Warned>,
    hosts: Vec<(Box<str>, Option<PrintedHost>)>,
}

impl Ids {
    fn host_name(&self, speaker: u32) -> &str {
        let host = self.speakers.get(speaker as usize).and_then(|met| self.hosts.get(met.fact.host as usize));
        host.map_or("", |(name, _)| name)
    }

    fn stream(&self, stream: u32) -> &str {
        self.streams.get(stream as usize).map_or("", |s| s)
    }
}

/// A speaker of a worker.
struct BlockSpeaker {
    fact: SpeakerFact,
    /// None as long as it says nothing that is kept.
    heard: Option<(SpeakerId, PrintedHost)>,
}

/// Where a block begins.
#[derive(Clone, Copy)]
struct Base {
    input: u32,
    lines: u64,
}

impl Base {
    fn place(self, line: u32) -> Place {
        Place { input: self.input, line: self.lines + u64::from(line) + 1 }
    }
}

impl Assembler {
    /// Begins an input; its blocks follow.
    pub fn begin(&mut self, path: &str) {
        self.run.inputs.push(Input { path: path.to_string(), ..Input::default() });
        self.readers = Readers::knowing(std::mem::take(&mut self.run.machines));
        self.ids.clear();
        self.printed.clear();
        self.told.clear();
        (self.notes, self.driver_told) = (Notes::default(), None);
        self.nccl_lines_before = self.log.log.lines;
    }

    /// Index of the current input.
    pub fn current_input(&self) -> u32 {
        self.run.inputs.len().saturating_sub(1) as u32
    }

    /// Adds a block of the current input; returns the room of its events.
    pub fn absorb(&mut self, mut facts: BlockFacts) -> Vec<Event> {
        self.meet(&mut facts);
        let base = self.base();
        let mut ids = std::mem::take(&mut self.ids[facts.worker]);
        self.count(&mut ids, &facts.spoken);
        self.log.log.lines += facts.nccl_lines;
        self.log.log.unknown_lines += facts.unknown_lines;
        self.log.log.warn_lines += facts.warn_lines;
        let known = facts.first_lines.iter().filter(|first| self.notes.knows(first.wording));
        for FirstLine { stream, line, .. } in known {
            self.readers.ends.known(ids.stream(*stream), std::iter::once(base.place(*line).line));
        }
        self.events(&mut facts.events, &mut ids, base);
        for (stream, lines) in facts.known_lines.drain(..) {
            self.readers.ends.known(ids.stream(stream), lines.lines().iter().map(|line| base.place(*line).line));
        }
        for LastLine { stream, line, text, of_program } in facts.last_lines.drain(..) {
            self.readers.ends.last(ids.stream(stream), SourceLine::new(base.place(line), &text), of_program);
        }
        self.notes.loops.absorb(facts.loops, base.lines);
        self.ids[facts.worker] = ids;
        if let Some(input) = self.run.inputs.last_mut() {
            input.lines += facts.lines;
        }
        facts.events
    }

    fn events(&mut self, events: &mut Vec<Event>, ids: &mut Ids, base: Base) {
        let mut edge_comm = None;
        let mut told = false;
        let mut last = (NOBODY, NOBODY);
        for event in events.drain(..) {
            if std::mem::take(&mut told) || self.is_old(ids, &event) {
                told = matches!(event.what, Fact::Once(_));
                continue;
            }
            if last.0 != event.speaker {
                last = (event.speaker, self.hear(ids, event.speaker).map_or(NOBODY, |(speaker, _)| speaker));
            }
            let speaker = last.1;
            let place = base.place(event.line);
            match event.what {
                Fact::Edge(edge) => self.edge(speaker, edge, edge_comm.take(), (ids, place)),
                Fact::EdgeComm(address) => edge_comm = Some(address),
                Fact::LogMessage(line) => self.said(speaker, *line, place),
                Fact::Once(_) => {}
                Fact::Driver => self.driver(speaker, place.line),
                Fact::Warn(number) => {
                    let speakers = &self.speakers;
                    let who = || (speaker != NOBODY).then(|| speakers.model(speaker));
                    let Some(warned) = ids.warnings.get_mut(number as usize) else { continue };
                    warned.count(&mut self.log, who, place);
                }
                Fact::Text(line) => {
                    let stream = ids.stream(line.stream);
                    self.readers.feed(&TextLine { place, stream, text: &line.text }, line.offered);
                }
                Fact::Inspector(sample) => {
                    self.samples.add(&sample.0, place, &sample.1);
                    self.readers.claim(InputKind::NcclInspector, 1);
                }
                Fact::End(end) => {
                    self.readers.ends.feed(ids.stream(end.stream), end.said, SourceLine::new(place, &end.text));
                }
                Fact::Statement(said) => {
                    let host = (speaker != NOBODY).then(|| self.speakers.host_name_of(speaker).to_string());
                    self.log.statement(said.by, SourceLine::new(place, &said.text), host);
                }
                Fact::Shell(command) => self.shell.take(command.line, SourceLine::new(place, &command.text)),
            }
        }
    }

    fn base(&self) -> Base {
        Base { input: self.current_input(), lines: self.run.inputs.last().map_or(0, |i| i.lines) }
    }

    fn count(&mut self, ids: &mut Ids, spoken: &[HostLines]) {
        for spoken in spoken {
            if let Some(printed) = self.printed_host(ids, spoken) {
                self.speakers.count(printed, spoken.lines, spoken.clean_lines);
            }
        }
    }

    /// Gives what is new in the next block the run's own ids. Of a block that is scanned again, the first worker will not tell them
    /// a second time.
    pub fn meet(&mut self, facts: &mut BlockFacts) {
        let base = self.base();
        if self.ids.len() <= facts.worker {
            self.ids.resize_with(facts.worker + 1, Ids::default);
        }
        let ids = &mut self.ids[facts.worker];
        ids.hosts.extend(facts.new_hosts.drain(..).map(|name| (name, None)));
        ids.speakers.extend(facts.new_speakers.drain(..).map(|fact| BlockSpeaker { fact, heard: None }));
        ids.streams.append(&mut facts.new_streams);
        ids.warnings.extend(facts.new_warnings.drain(..).map(|warning| Warned::New(Box::new(warning))));
        for (transport, line, text) in facts.new_transports.drain(..) {
            let place = base.place(line);
            let key = (transport.via.clone(), transport.pxn);
            let next = u16::try_from(self.transports.len()).ok().filter(|next| *next < MOST_TRANSPORTS);
            if let (None, Some(next)) = (self.transport_ids.get(&key), next) {
                self.run.kept_lines.insert(place, SourceLine::new(place, &text).text);
                self.transports.push(Transport { first: place, ..transport });
                self.transport_ids.insert(key.clone(), next);
            }
            ids.transports.push(self.transport_ids.get(&key).copied());
        }
    }

    /// The host of a block's speaker. Its name counts as it was printed first, by whatever process.
    fn printed_host(&mut self, ids: &mut Ids, spoken: &HostLines) -> Option<PrintedHost> {
        let (name, None) = ids.hosts.get(spoken.host as usize)? else { return ids.hosts[spoken.host as usize].1 };
        let name = name.clone();
        let printed = match self.printed.get(&name) {
            Some(known) => *known,
            None => self.hear(ids, spoken.speaker)?.1,
        };
        self.printed.insert(name, printed);
        ids.hosts[spoken.host as usize].1 = Some(printed);
        Some(printed)
    }

    /// Whether an event tells what was told before: an event that all ranks of a host have, or a line of a wording of which
    /// there are enough.
    fn is_old(&mut self, ids: &Ids, event: &Event) -> bool {
        match &event.what {
            Fact::Once(number) => {
                let key = FxBuildHasher.hash_one((ids.host_name(event.speaker), number));
                self.told.len() >= MOST_TOLD || !self.told.insert(key)
            }
            Fact::Statement(said) => !self.notes.keep(said.wording),
            _ => false,
        }
    }

    /// A process tells the driver's version. After that of another process, whose version follows is open.
    fn driver(&mut self, speaker: SpeakerId, line: u64) {
        let after_another = self.driver_told.is_some_and(|(other, before)| before + 1 == line && other != speaker);
        self.driver_told = Some((if after_another { NOBODY } else { speaker }, line));
    }

    /// The run's id of a worker's speaker, given when it is asked for first.
    fn hear(&mut self, ids: &mut Ids, speaker: u32) -> Option<(SpeakerId, PrintedHost)> {
        let met = ids.speakers.get_mut(speaker as usize)?;
        let name = ids.hosts.get(met.fact.host as usize).map_or("", |(name, _)| name);
        Some(*met.heard.get_or_insert_with(|| self.speakers.intern(name, &met.fact)))
    }

    fn model_speaker(&self, speaker: SpeakerId) -> Option<busbw_model::LogPrefix> {
        (speaker != NOBODY).then(|| self.speakers.model(speaker))
    }

    fn edge(&mut self, speaker: SpeakerId, edge: Edge, address: Option<u64>, (ids, place): (&Ids, Place)) {
        let Some(Some(transport)) = ids.transports.get(usize::from(edge.transport)) else { return };
        let edge = Edge { transport: *transport, ..edge };
        match speaker {
            NOBODY => self.views.orphan_edge(edge),
            _ => {
                let network = self.transports.get(usize::from(*transport)).is_some_and(|t| t.kind.is_network());
                self.views.edge(speaker, edge, (address, network), (&self.speakers, place));
            }
        }
    }

    fn said(&mut self, speaker: SpeakerId, line: MessageLine, place: Place) {
        let source = SourceLine::new(place, &line.text);
        if speaker == NOBODY {
            self.anonymous.said(&line.said, place);
        }
        let speakers = &self.speakers;
        let host = || (speaker != NOBODY).then(|| speakers.host_name_of(speaker));
        match line.said {
            LogMessage::Version(version) => {
                let told = self.driver_told.filter(|(_, line)| speaker == NOBODY && line + 1 == place.line);
                let speaker = told.map_or(speaker, |(told, _)| told);
                let process = self.model_speaker(speaker).map(|speaker| (speaker.host, speaker.pid));
                self.log.version(version, process.as_ref().map(|(host, pid)| (&**host, *pid)), source);
            }
            LogMessage::Env { name, value } => self.log.env((name, value), EnvOrigin::NcclLog, host(), source),
            LogMessage::Net(net) => self.log.network(net, host(), source),
            LogMessage::ErrorStep { site, result } => {
                if let Some(view) = self.views.rising(speaker, &self.speakers) {
                    view.failed.get_or_insert(place);
                }
                let speaker = self.model_speaker(speaker);
                self.log.error_step(site, result, speaker, source);
            }
            LogMessage::Choice(choice) => self.log.choice(choice, &source),
            LogMessage::Pattern(pattern) => self.log.pattern(pattern, source),
            LogMessage::GpuDirect => self.log.gpu_direct(source),
            LogMessage::Init(init) if speaker == NOBODY => self.views.orphan_init(&init),
            LogMessage::Ring(ring) if speaker == NOBODY => {
                self.ring_texts.insert(source.place, source.text);
                self.views.orphan_ring(ring, place);
            }
            said if speaker != NOBODY => self.structure(speaker, said, source),
            _ => {}
        }
    }

    fn structure(&mut self, speaker: SpeakerId, said: LogMessage, source: SourceLine) {
        let at = (&self.speakers, source.place);
        match said {
            LogMessage::Ring(ring) => {
                self.ring_texts.insert(source.place, source.text);
                self.views.ring(speaker, ring, at);
            }
            LogMessage::RingLink(link) => self.views.ring_link(speaker, link, at),
            LogMessage::Trees(trees) => self.views.trees(speaker, trees, at),
            LogMessage::Init(init) => self.views.init(speaker, &init, at),
            LogMessage::Sizes(sizes) => self.views.sizes(speaker, &sizes, at),
            LogMessage::Bootstrapped => {
                if let Some(view) = self.views.rising(speaker, &self.speakers) {
                    view.met = true;
                }
            }
            LogMessage::RingsConnected => self.views.rings_connected(speaker, &self.speakers),
            LogMessage::Nvls(address) => self.views.nvls(speaker, address, &self.speakers),
            LogMessage::Channels(counts) => {
                if let Some(view) = self.views.latest(speaker, &self.speakers) {
                    view.counts = view.counts.or(Some(counts));
                }
            }
            LogMessage::CollNet { .. } => {
                if let Some(view) = self.views.latest(speaker, &self.speakers) {
                    view.collnet = true;
                }
            }
            _ => {}
        }
    }

    /// Adds what was read from a whole document (nccl-tests' or perftest's JSON) instead of line by line.
    pub fn document(&mut self, kind: InputKind, lines: u64, add: impl FnOnce(&mut Run)) {
        add(&mut self.run);
        if let Some(input) = self.run.inputs.last_mut() {
            input.lines = lines;
        }
        self.readers.claim(kind, 1);
    }

    /// Adds a dump of PyTorch's flight recorder. The file's name shows the rank: the dump itself does not.
    pub fn recording(&mut self, mut recording: Recording) {
        let path = self.run.inputs.last().map_or("", |input| input.path.as_str());
        recording.dump.rank = rank_of_path(path);
        if recording.dump.rank.is_none() {
            let advice = "this flight-recorder dump does not say whose it is; give it under a name that ends in its rank, as \
                          PyTorch does: nccl_trace_rank_3";
            self.problem(recording.dump.source.place.line, advice.to_string());
        }
        self.process_groups.recording(&recording);
        self.ways.take(&recording);
        self.run.flight_dumps.push(recording.dump);
    }

    /// Notes what could not be read of the current input.
    pub fn problem(&mut self, line: u64, text: String) {
        let input = self.current_input();
        self.run.problems.push(Problem { place: Place { input, line }, text });
    }

    pub fn end(&mut self, bytes: u64) {
        self.end_of_log();
        let mut readers = std::mem::take(&mut self.readers);
        self.evidence(&mut readers);
        let mut kinds: Vec<(InputKind, u64)> = readers.claimed.into_iter().collect();
        let nccl_lines = self.log.log.lines - self.nccl_lines_before;
        kinds.extend((nccl_lines > 0).then_some((InputKind::NcclLog, nccl_lines)));
        kinds.sort_by_key(|(kind, lines)| (std::cmp::Reverse(*lines), *kind));
        self.run.tables.extend(readers.tables.finish().into_iter().chain(readers.other_tables.finish()));
        let input = self.current_input();
        self.run.steps.extend(std::mem::take(&mut self.notes.loops).finish(input));
        let tables = self.run.tables.iter().map(|table| table.place).filter(|place| place.input == input);
        self.named.extend(self.shell.commands().filter_map(listed::named_by));
        self.started.extend(self.shell.starts());
        self.log.log.env.extend(std::mem::take(&mut self.shell).end(tables.collect()));
        self.run.topo_matrices.extend(readers.matrices.finish());
        let xml = readers.xml.finish();
        self.run.topo_xmls.extend(xml.systems);
        self.run.graph_xmls.extend(xml.graphs);
        self.run.problems.extend(xml.errors.into_iter().map(|(place, text)| Problem { place, text }));
        self.run.perftests.extend(readers.perftest.finish());
        self.run.copies.extend(readers.copies.finish());
        self.run.rdma_checks.extend(readers.checks.finish());
        self.run.rdma_samples.extend(readers.monitor.finish());
        self.run.system_dumps.extend(readers.dumps.finish());
        if let Some(input) = self.run.inputs.last_mut() {
            input.bytes = bytes;
            input.kinds = kinds.into_iter().map(|(kind, _)| kind).collect();
            input.lines = input.lines.max(u64::from(bytes > 0));
        }
    }

    /// Tells the log which processes spoke in the input.
    fn end_of_log(&mut self) {
        let met = self.ids.iter().flat_map(|ids| &ids.speakers);
        let heard = met.filter_map(|met| met.heard).map(|(speaker, _)| self.speakers.get(speaker).process);
        let ids: BTreeSet<ProcessId> = heard.collect();
        let name = |id: &ProcessId| (self.speakers.host_name(self.speakers.host_of(*id)), self.speakers.pid(*id));
        let processes: Vec<(&str, u64)> = ids.iter().map(name).collect();
        self.log.end(&processes);
    }

    /// What the readers of NCCL's, PyTorch's and the system's tools found.
    fn evidence(&mut self, readers: &mut Readers) {
        for (sample, place, text) in readers.samples.drain(..) {
            self.samples.add(&sample, place, &text);
        }
        for recording in std::mem::take(&mut readers.recordings) {
            self.recording(recording);
        }
        self.run.ras_reports.append(&mut readers.ras_json);
        self.run.ras_reports.extend(std::mem::take(&mut readers.ras).finish());
        self.run.diagnostics.extend(std::mem::take(&mut readers.diag).finish());
        self.run.torch_statements.extend(std::mem::take(&mut readers.torch).finish());
        self.run.torch_statements.extend(std::mem::take(&mut readers.traces).finish());
        let path = self.run.inputs.last().map_or("", |input| input.path.as_str());
        let (stacks, stopped, asked) = std::mem::take(&mut readers.stacks).finish(path);
        self.run.stacks.extend(stacks);
        self.run.stopped.extend(stopped);
        self.run.unended.extend(asked);
        self.run.sockets.extend(std::mem::take(&mut readers.sockets).finish());
        self.run.versions.extend(std::mem::take(&mut readers.versions).finish());
        let (ends, outputs) = std::mem::take(&mut readers.ends).finish(path);
        self.run.ends.extend(ends);
        // What a debugger or a recorder writes about a rank is none of its output.
        let of_tools =
            [InputKind::FlightRecorder, InputKind::Stacks].iter().any(|kind| readers.claimed.contains_key(kind));
        self.run.outputs.extend(outputs.into_iter().filter(|_| !of_tools));
        self.run.machines.extend(std::mem::take(&mut readers.host).finish());
        self.run.machines.append(&mut readers.saved_facts);
        self.run.hellos.append(&mut readers.hellos);
    }

    pub fn finish(mut self) -> Run {
        let (hosts, node_of_host) = self.speakers.real_hosts();
        self.anonymous.make_views(&mut self.views, &mut self.speakers);
        let (groups, span) = std::mem::take(&mut self.process_groups).finish(&self.run.torch_statements);
        self.run.process_groups = groups;
        leave_out(&mut self.run, span);
        self.ways.finish(&mut self.run.flight_dumps);
        self.run.inspector_runs = self.samples.finish();
        for place in ring_places(&self.views) {
            if let Some(text) = self.ring_texts.remove(&place) {
                self.run.kept_lines.insert(place, text);
            }
        }
        self.run.communicators = assemble(Parts {
            views: self.views,
            speakers: &self.speakers,
            transports: &self.transports,
            nodes: &node_of_host,
        });
        self.run.nccl = self.log.log;
        self.run.nccl.env.sort_by_key(|setting| setting.source.place);
        self.run.statements = self.log.statements;
        link::nodes(&mut self.run, hosts, self.log.nics);
        hosts::number(&mut self.run);
        listed::settle(&mut self.run, self.named, &self.started);
        self.run
    }
}

/// Leaves out dumps of another time than most.
fn leave_out(run: &mut Run, span: Option<(u64, u64)>) {
    let inside = |dump: &FlightDump| dump.span_ns.zip(span).is_none_or(|((a, b), (begin, end))| begin <= a && b <= end);
    for dump in run.flight_dumps.iter_mut().filter(|dump| !dump.cut && !inside(dump)) {
        let text = "a flight-recorder dump of another job, or of another start of it, than most here: it is left out";
        run.problems.push(Problem { place: dump.source.place, text: text.into() });
        (dump.at, dump.cut) = (None, true);
    }
}
