//! The page of each finding code, from `docs/findings/`.

use busbw_model::Code;

/// What a code means, how NCCL shows it, how to confirm it and how to fix it, as Markdown.
///
/// ```
/// let page = busbw_diagnose::page(busbw_model::Code::GdrDisabled);
/// assert!(page.starts_with("# gdr.disabled") && page.contains("nvidia-peermem"));
/// ```
pub fn page(code: Code) -> &'static str {
    macro_rules! pages {
        ($($code:ident $name:literal $meaning:literal)*) => {
            match code {
                $(Code::$code => include_str!(concat!("../../../../docs/findings/", $name, ".md")),)*
            }
        };
    }
    busbw_model::codes!(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_its_parts() {
        const PARTS: [&str; 4] = ["## How NCCL shows it", "## How to confirm", "## How to fix", "## Sources"];
        for (code, name, _) in Code::ALL {
            let page = page(code);
            assert!(page.starts_with(&format!("# {name}: ")), "{name}");
            assert!(PARTS.iter().all(|part| page.contains(part)), "{name}");
        }
    }
}
