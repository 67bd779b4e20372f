//! The lines around others, read a second time: while a log is read, nobody knows yet which of its lines will matter.

use crate::clean::without_escapes;
use crate::packed;
use crate::source::read_up_to;
use busbw_model::{Place, Run, SourceLine};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek as _, Take};
use std::path::Path;

/// What of a line is read, as a line may be of any length.
const LONGEST: u64 = 4096;

/// The lines up to `reach` before and behind `places`. Those of inputs that cannot be read again, as pipes, are absent.
pub fn around(run: &Run, places: impl IntoIterator<Item = Place>, reach: u64) -> BTreeMap<Place, SourceLine> {
    let mut wanted: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    for Place { input, line } in places.into_iter().filter(|place| place.line > 0) {
        let near = line.saturating_sub(reach).max(1)..=line.saturating_add(reach);
        wanted.entry(input).or_default().extend(near);
    }
    let mut found = BTreeMap::new();
    for (input, lines) in wanted {
        let path = run.inputs.get(input as usize).map(|known| Path::new(&known.path));
        let file = path.filter(|path| path.is_file()).and_then(|path| File::open(path).ok());
        for (line, text) in file.into_iter().flat_map(|file| pick(file, &lines)) {
            let place = Place { input, line };
            found.insert(place, SourceLine::new(place, &text));
        }
    }
    found
}

/// The wanted lines, as far as the file has them.
fn pick(mut file: File, wanted: &BTreeSet<u64>) -> Vec<(u64, String)> {
    let mut start = [0; 4];
    let is_packed = read_up_to(&mut file, &mut start).is_ok_and(|count| packed::is_packed(&start[..count]));
    if file.rewind().is_err() {
        return Vec::new();
    }
    let text: Box<dyn Read + Send> = if is_packed { packed::unpacked(file) } else { Box::new(file) };
    let mut reader = BufReader::with_capacity(256 << 10, text);
    let mut found = Vec::new();
    let mut at = 1;
    for &line in wanted {
        while at < line {
            if !matches!(reader.skip_until(b'\n'), Ok(1..)) {
                return found;
            }
            at += 1;
        }
        let mut bytes = Vec::new();
        let mut head: Take<&mut BufReader<Box<dyn Read + Send>>> = reader.by_ref().take(LONGEST);
        if !matches!(head.read_until(b'\n', &mut bytes), Ok(1..)) {
            return found;
        }
        if bytes.last() != Some(&b'\n') && reader.skip_until(b'\n').is_err() {
            return found;
        }
        at += 1;
        let text = String::from_utf8_lossy(without_escapes(&bytes).trim_ascii_end()).into_owned();
        found.push((line, text));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use busbw_model::Input;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write as _;

    #[test]
    fn lines_around_others_are_found_again() {
        let folder = std::env::temp_dir().join(format!("busbw-context-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a place for files");
        let path = folder.join("run.log");
        let long = "x".repeat(10_000);
        std::fs::write(&path, format!("one\ntwo\n{long}\n\x1b[31mfour\x1b[0m\r\nfive")).expect("written");
        // A line of a packed file is one of its text.
        let packed = folder.join("run.log.gz");
        let mut writer = GzEncoder::new(File::create(&packed).expect("a file"), Compression::default());
        writer.write_all(b"one\ntwo\nsix").and_then(|()| writer.finish().map(drop)).expect("written");
        let input = |path: &Path| Input { path: path.display().to_string(), ..Input::default() };
        let run = Run { inputs: vec![input(Path::new("-")), input(&path), input(&packed)], ..Run::default() };
        let places = [(0, 1), (1, 4), (1, 0), (2, 5)].map(|(input, line)| Place { input, line });
        let found = around(&run, places, 2);
        std::fs::remove_dir_all(&folder).expect("removed");
        let lines: Vec<(u64, &str)> =
            found.iter().map(|(place, line)| (place.line, &line.text[..line.text.len().min(4)])).collect();
        assert_eq!(lines, [(2, "two"), (3, "xxxx"), (4, "four"), (5, "five"), (3, "six")]);
        assert!(found.keys().all(|place| place.input > 0));
    }
}
