//! Reads NCCL's XML: the topology (`NCCL_TOPO_FILE`, `NCCL_TOPO_DUMP_FILE`) and the graphs (`NCCL_GRAPH_FILE`,
//! `NCCL_GRAPH_DUMP_FILE`), from whole files or from the middle of a log. `src/graph/xml.cc` of NCCL defines the elements.

use crate::TextLine;
use busbw_model::{Place, XmlCpu, XmlGpu, XmlGraph, XmlGraphs, XmlNet, XmlNic, XmlPci, XmlTopology};
use roxmltree::{Document, Node, ParsingOptions};
use rustc_hash::FxHashMap;
use std::str::FromStr;

/// The longest document that is kept, in bytes.
const MAX_DOCUMENT: usize = 64 << 20;

/// The most elements, attributes and texts of a document. NCCL reads 256 elements of a topology and 65,536 of graphs
/// (`NCCL_TOPO_XML_MAX_NODES`, `NCCL_GRAPH_XML_MAX_NODES` in 2.30).
const MAX_XML_NODES: u32 = 1 << 21;

/// The most attributes of an element, and namespaces of a document, each of which is compared with those before it. NCCL reads 16
/// attributes (`MAX_ATTR_COUNT` in `src/graph/xml.h`) and no namespace.
const MAX_ATTRIBUTES: usize = 256;

/// The deepest nesting of PCI bridges: a bus number has 8 bits, so that no hierarchy is deeper.
const MAX_PCI_DEPTH: usize = 256;

/// Why a document could not be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum XmlError {
    #[error("this is not well-formed XML ({0}); write it again with NCCL_TOPO_DUMP_FILE or NCCL_GRAPH_DUMP_FILE")]
    Malformed(#[from] roxmltree::Error),
    #[error("the root element is <{found}>, expected <{expected}>; is this a file of NCCL?")]
    WrongRoot {
        /// `system` or `graphs`.
        expected: &'static str,
        found: String,
    },
    /// More than 256 attributes of an element, or namespaces.
    #[error(
        "an element has more than {MAX_ATTRIBUTES} attributes, or there are as many namespaces; is this a file of NCCL?"
    )]
    TooManyAttributes,
    /// More than 256 PCI bridges behind each other.
    #[error("PCI devices are nested more than {MAX_PCI_DEPTH} deep; no machine has that, check the closing tags")]
    TooDeep,
}

/// Every XML document found in the lines.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct XmlDocuments {
    /// `<system>` documents.
    pub systems: Vec<XmlTopology>,
    /// `<graphs>` documents.
    pub graphs: Vec<XmlGraphs>,
    /// Documents that could not be read: their first line, and why.
    pub errors: Vec<(Place, String)>,
}

/// Collects documents from lines, wherever they begin and end in a line.
///
/// ```
/// use busbw_ingest::{TextLine, nccl_topo_xml::XmlReader};
/// use busbw_model::Place;
/// let mut reader = XmlReader::default();
/// let text = r#"<system version="1"><cpu numaid="0"><pci busid="0000:0f:00.0"/></cpu></system>"#;
/// assert!(reader.feed(&TextLine { place: Place::default(), stream: "", text }));
/// assert_eq!(reader.finish().systems[0].cpus[0].pcis[0].bus_id, "0000:0f:00.0");
/// ```
#[derive(Debug, Default)]
pub struct XmlReader {
    found: XmlDocuments,
    open: FxHashMap<Box<str>, OpenDocument>,
}

#[derive(Debug)]
struct OpenDocument {
    kind: &'static Kind,
    place: Place,
    text: String,
    in_comment: bool,
}

#[derive(Debug)]
struct Kind {
    name: &'static str,
    end_tag: &'static str,
}

const SYSTEM: Kind = Kind { name: "system", end_tag: "</system>" };
const GRAPHS: Kind = Kind { name: "graphs", end_tag: "</graphs>" };

impl Kind {
    const ALL: [&'static Kind; 2] = [&SYSTEM, &GRAPHS];

    /// Where the first document begins, and of which kind it is.
    fn find(text: &str) -> Option<(usize, &'static Kind)> {
        let ends_name = |c: char| c == '>' || c == '/' || c.is_ascii_whitespace();
        let begins = |at: usize, kind: &Kind| {
            let rest = text[at + 1..].strip_prefix(kind.name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(ends_name))
        };
        memchr::memchr_iter(b'<', text.as_bytes())
            .find_map(|at| Kind::ALL.into_iter().find(|kind| begins(at, kind)).map(|kind| (at, kind)))
    }
}

impl XmlReader {
    /// False only when the text neither begins nor ends as a tag does, has no attribute, and starts no document.
    pub fn may_belong(text: &[u8]) -> bool {
        let trimmed = text.trim_ascii();
        let starts = |at: usize| text[at + 1..].starts_with(b"system") || text[at + 1..].starts_with(b"graphs");
        trimmed.starts_with(b"<")
            || trimmed.starts_with(b"-->")
            || trimmed.ends_with(b">")
            || memchr::memchr_iter(b'"', text).any(|at| text[..at].ends_with(b"="))
            || memchr::memchr_iter(b'<', text).any(starts)
    }

    /// Takes a line; true when it, or a part of it, belongs to a document.
    pub fn feed(&mut self, line: &TextLine) -> bool {
        let Some(mut document) = self.open.remove(line.stream) else { return self.find_documents(line, line.text) };
        let next = Kind::find(line.text).filter(|_| !document.in_comment);
        if next.is_some_and(|(at, _)| !line.text[..at].contains(document.kind.end_tag)) {
            self.found.errors.push((document.place, document.unterminated()));
            return self.find_documents(line, line.text);
        }
        if !document.continues_with(line.text) {
            self.open.insert(line.stream.into(), document);
            return false;
        }
        match line.text.find(document.kind.end_tag) {
            Some(at) if !document.in_comment => {
                let end = at + document.kind.end_tag.len();
                document.text.push_str(&line.text[..end]);
                self.close(document);
                self.find_documents(line, &line.text[end..]);
            }
            _ => self.keep(line.stream, document, line.text),
        }
        true
    }

    /// Everything found. A document that never ended is an error.
    pub fn finish(mut self) -> XmlDocuments {
        self.found.errors.extend(self.open.into_values().map(|document| (document.place, document.unterminated())));
        self.found.systems.sort_by_key(|system| system.place);
        self.found.graphs.sort_by_key(|graphs| graphs.place);
        self.found.errors.sort_by_key(|(place, _)| *place);
        self.found
    }

    /// Reads the documents that begin in `text`, which is the line or the rest of it.
    fn find_documents(&mut self, line: &TextLine, mut text: &str) -> bool {
        let mut any = false;
        while let Some((start, kind)) = Kind::find(text) {
            any = true;
            text = &text[start..];
            let mut document = OpenDocument { kind, place: line.place, text: String::new(), in_comment: false };
            let empty = memchr::memchr(b'>', text.as_bytes()).filter(|&at| text[..at].ends_with('/'));
            let end_tag = || text.find(kind.end_tag).map(|at| at + kind.end_tag.len());
            let end = empty.map(|at| at + 1).or_else(end_tag);
            let Some(end) = end else {
                document.note_comment(text);
                self.keep(line.stream, document, text);
                break;
            };
            document.text.push_str(&text[..end]);
            self.close(document);
            text = &text[end..];
        }
        any
    }

    fn keep(&mut self, stream: &str, mut document: OpenDocument, text: &str) {
        if document.text.len() + text.len() > MAX_DOCUMENT {
            let message = format!("<{}> is longer than {} MiB", document.kind.name, MAX_DOCUMENT >> 20);
            self.found.errors.push((document.place, message));
            return;
        }
        document.text.push_str(text);
        document.text.push('\n');
        self.open.insert(stream.into(), document);
    }

    fn close(&mut self, document: OpenDocument) {
        let place = document.place;
        let error = match document.kind.name == SYSTEM.name {
            true => read_system(&document.text, place).map(|system| self.found.systems.push(system)).err(),
            false => read_graphs(&document.text, place).map(|graphs| self.found.graphs.push(graphs)).err(),
        };
        self.found.errors.extend(error.map(|error| (place, error.to_string())));
    }
}

impl OpenDocument {
    /// Whether a line below the start is a part of the document, and not a log line that landed in it.
    fn continues_with(&mut self, text: &str) -> bool {
        if self.in_comment {
            self.note_comment(text);
            return true;
        }
        let text = text.trim();
        let belongs = text.starts_with('<') || text.contains("=\"") || matches!(text, ">" | "/>");
        if belongs {
            self.note_comment(text);
        }
        belongs
    }

    fn note_comment(&mut self, text: &str) {
        let end = text.rfind("-->").map_or(0, |at| at + 1);
        let start = text.rfind("<!--").map_or(0, |at| at + 1);
        if start.max(end) > 0 {
            self.in_comment = start > end;
        }
    }

    fn unterminated(&self) -> String {
        format!(
            "<{}> has no {}: the text was cut, or the program ended while it wrote",
            self.kind.name, self.kind.end_tag
        )
    }
}

/// Reads a topology. The version is not checked: NCCL refuses every other than 1, and has never written another.
///
/// # Errors
/// The text is no well-formed XML, its root is not `<system>`, an element has too many attributes, or bridges are nested too deeply.
pub fn read_system(text: &str, place: Place) -> Result<XmlTopology, XmlError> {
    let document = parse(text)?;
    let root = expect_root(&document, &SYSTEM)?;
    let cpus = children(root, "cpu").map(read_cpu).collect::<Result<_, _>>()?;
    Ok(XmlTopology { place, cpus })
}

/// Reads the graphs.
///
/// # Errors
/// The text is no well-formed XML, its root is not `<graphs>`, or an element has too many attributes.
pub fn read_graphs(text: &str, place: Place) -> Result<XmlGraphs, XmlError> {
    let document = parse(text)?;
    let root = expect_root(&document, &GRAPHS)?;
    Ok(XmlGraphs { place, graphs: children(root, "graph").map(read_graph).collect() })
}

/// White space before an XML declaration, which comes with indented text, is an error by the book.
fn parse(text: &str) -> Result<Document<'_>, XmlError> {
    let options = ParsingOptions { nodes_limit: MAX_XML_NODES, ..ParsingOptions::default() };
    // No `<` stands inside an element's tag; a comment may hold anything.
    let attributes = |tag: &[u8]| memchr::memchr_iter(b'=', tag).count();
    let mut tags = text.as_bytes().split(|b| *b == b'<').filter(|tag| !tag.starts_with(b"!--"));
    let mut namespaces = memchr::memmem::find_iter(text.as_bytes(), b"xmlns");
    if tags.any(|tag| attributes(tag) > MAX_ATTRIBUTES) || namespaces.nth(MAX_ATTRIBUTES).is_some() {
        return Err(XmlError::TooManyAttributes);
    }
    Ok(Document::parse_with_options(text.trim(), options)?)
}

fn expect_root<'a, 'input>(document: &'a Document<'input>, kind: &Kind) -> Result<Node<'a, 'input>, XmlError> {
    let root = document.root_element();
    if root.tag_name().name() == kind.name {
        return Ok(root);
    }
    Err(XmlError::WrongRoot { expected: kind.name, found: root.tag_name().name().to_string() })
}

fn children<'a, 'input>(node: Node<'a, 'input>, name: &'static str) -> impl Iterator<Item = Node<'a, 'input>> {
    node.children().filter(move |child| child.has_tag_name(name))
}

fn read_cpu(node: Node) -> Result<XmlCpu, XmlError> {
    Ok(XmlCpu {
        numa_id: integer(node, "numaid"),
        host_hash: string(node, "host_hash"),
        affinity: string(node, "affinity"),
        arch: string(node, "arch"),
        vendor: string(node, "vendor"),
        family_id: integer(node, "familyid"),
        model_id: integer(node, "modelid"),
        pcis: children(node, "pci").map(read_pci_tree).collect::<Result<_, _>>()?,
        nics: children(node, "nic").map(read_nic).collect(),
    })
}

/// Reads a bridge and what is behind it, with a stack of its own: nesting comes from the input.
fn read_pci_tree(root: Node) -> Result<XmlPci, XmlError> {
    let mut current = read_pci(root);
    let mut below: Vec<Node> = children(root, "pci").collect();
    below.reverse();
    let mut outer: Vec<(XmlPci, Vec<Node>)> = Vec::new();
    loop {
        if let Some(node) = below.pop() {
            if outer.len() == MAX_PCI_DEPTH {
                return Err(XmlError::TooDeep);
            }
            let mut inner: Vec<Node> = children(node, "pci").collect();
            inner.reverse();
            outer.push((std::mem::replace(&mut current, read_pci(node)), std::mem::replace(&mut below, inner)));
        } else if let Some((mut parent, siblings)) = outer.pop() {
            parent.children.push(std::mem::take(&mut current));
            (current, below) = (parent, siblings);
        } else {
            return Ok(current);
        }
    }
}

/// The device itself, without what is behind it.
fn read_pci(node: Node) -> XmlPci {
    XmlPci {
        bus_id: string(node, "busid").unwrap_or_default(),
        class: string(node, "class"),
        link_speed_gts: node.attribute("link_speed").and_then(read_link_speed),
        link_width: number(node, "link_width").filter(|&lanes| lanes > 0),
        children: Vec::new(),
        gpu: children(node, "gpu").next().map(read_gpu),
        nics: children(node, "nic").map(read_nic).collect(),
    }
}

/// GT/s from `16 GT/s`, `32.0 GT/s PCIe`; NCCL reads it with `sscanf("%f GT/s")`. Virtual machines have `Unknown` or nothing.
fn read_link_speed(text: &str) -> Option<f64> {
    let speed: f64 = text.split_whitespace().next()?.parse().ok()?;
    (speed.is_finite() && speed > 0.0).then_some(speed)
}

fn read_gpu(node: Node) -> XmlGpu {
    let nvlink = |link: Node| Some((string(link, "target")?, number(link, "count")?));
    XmlGpu {
        dev: integer(node, "dev"),
        sm: integer(node, "sm"),
        rank: integer(node, "rank"),
        gdr: flag(node, "gdr"),
        nvlinks: children(node, "nvlink").filter_map(nvlink).collect(),
    }
}

fn read_nic(node: Node) -> XmlNic {
    XmlNic { nets: children(node, "net").map(read_net).collect() }
}

fn read_net(node: Node) -> XmlNet {
    XmlNet {
        name: string(node, "name"),
        dev: integer(node, "dev"),
        speed_mbps: number(node, "speed"),
        port: integer(node, "port"),
        guid: string(node, "guid"),
        gdr: flag(node, "gdr"),
    }
}

fn read_graph(node: Node) -> XmlGraph {
    let gpu_orders: Vec<Vec<i32>> = children(node, "channel")
        .map(|channel| children(channel, "gpu").filter_map(|gpu| integer(gpu, "dev")).collect())
        .collect();
    XmlGraph {
        id: integer(node, "id").unwrap_or_default(),
        pattern: integer(node, "pattern").unwrap_or_default(),
        channels: number(node, "nchannels").unwrap_or(gpu_orders.len() as u32),
        speed_intra: number(node, "speedintra"),
        speed_inter: number(node, "speedinter"),
        type_intra: string(node, "typeintra"),
        type_inter: string(node, "typeinter"),
        gpu_orders,
    }
}

fn string(node: Node, name: &str) -> Option<String> {
    node.attribute(name).map(str::to_string)
}

fn number<T: FromStr>(node: Node, name: &str) -> Option<T> {
    node.attribute(name)?.trim().parse().ok()
}

/// A whole number, decimal or `0x…`, as NCCL reads it (`strtol` with base 0).
fn integer(node: Node, name: &str) -> Option<i32> {
    let text = node.attribute(name)?.trim();
    match text.strip_prefix("0x") {
        Some(digits) => i32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn flag(node: Node, name: &str) -> Option<bool> {
    integer(node, name).map(|value| value != 0)
}
