//! Answers for programs: JSON documents, each with a schema that is made from the types that are written.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A document with a schema of its own.
pub trait Answer: Serialize + JsonSchema {
    /// The name of the schema: `busbw.explain/1`.
    const SCHEMA: &'static str;
}

/// An answer as it is written: the name of its schema comes first.
#[derive(Debug, Serialize)]
pub struct Document<'a, A> {
    schema: &'static str,
    #[serde(flatten)]
    answer: &'a A,
}

impl<'a, A: Answer> Document<'a, A> {
    /// The document of an answer.
    pub fn new(answer: &'a A) -> Self {
        Document { schema: A::SCHEMA, answer }
    }
}

/// The JSON Schema of an answer, as `docs/schema` keeps it.
pub fn schema<A: Answer>() -> Schema {
    let file = A::SCHEMA.trim_start_matches("busbw.").replace('/', "-");
    let mut schema = generated::<A>(A::SCHEMA, &file);
    let name = schemars::json_schema!({ "const": A::SCHEMA, "description": "The name of this schema." });
    if let Some(properties) = schema.ensure_object().get_mut("properties").and_then(|of| of.as_object_mut()) {
        properties.insert("schema".into(), name.to_value());
    }
    if let Some(required) = schema.ensure_object().get_mut("required").and_then(|of| of.as_array_mut()) {
        required.insert(0, "schema".into());
    }
    schema
}

/// The JSON Schema of a document that does not name it.
pub fn generated<T: JsonSchema>(title: &str, file: &str) -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.with_transform(RecursiveTransform(tidy)).into_generator().into_root_schema_for::<T>();
    schema.insert("title".into(), title.into());
    schema.insert(
        "$id".into(),
        format!("https://github.com/busbw/busbw/blob/main/docs/schema/{file}.schema.json").into(),
    );
    schema
}

/// Says what serde_json writes (`null` for a number that is not finite), and nothing of how a document is read.
fn tidy(schema: &mut Schema) {
    for of_readers in ["default", "format", "readOnly"] {
        schema.remove(of_readers);
    }
    if schema.get("type").is_some_and(|of| of == "number") {
        schema.insert("type".into(), ["number", "null"].as_slice().into());
    }
    if let Some(text) = schema.get("description").and_then(|text| text.as_str()) {
        let text = text.replace("\n\n", "\0").replace('\n', " ").replace('\0', "\n\n").replace("`None`", "null");
        schema.insert("description".into(), text.into());
    }
    let required: Vec<Value> = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    for (name, member) in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        if !required.iter().any(|required| required == name) {
            never_null(member);
        }
    }
}

/// A member that is left out where there is nothing to say is not `null`.
fn never_null(member: &mut Value) {
    if let Some(types) = member.get_mut("type").and_then(Value::as_array_mut) {
        types.retain(|of| of != "null");
    }
    if let Some([of, null]) = member.get("anyOf").and_then(Value::as_array).map(Vec::as_slice)
        && null["type"] == "null"
    {
        member["$ref"] = of["$ref"].clone();
        member.as_object_mut().map(|member| member.remove("anyOf"));
    }
}

/// Reads what this version knows. All else is nothing: a name that a later version wrote, a number that is not finite.
pub fn known<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Known<T> {
        This(T),
        Other(IgnoredAny),
    }
    Ok(match Known::deserialize(deserializer)? {
        Known::This(value) => Some(value),
        Known::Other(_) => None,
    })
}
