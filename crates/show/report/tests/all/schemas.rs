//! The files of `docs/schema` are what the types say. `BUSBW_BLESS=1 cargo test -p busbw-report schemas` writes them.

use std::path::Path;

#[test]
fn the_schemas_are_those_of_the_types() {
    for schema in busbw_report::json::schemas() {
        let text = format!("{:#}\n", schema.as_value());
        let name = schema.get("$id").unwrap().as_str().unwrap().rsplit('/').next().unwrap();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/schema").join(name);
        if std::env::var_os("BUSBW_BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "write {name} anew with BUSBW_BLESS=1");
    }
}
