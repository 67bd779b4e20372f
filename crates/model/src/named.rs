//! Enums whose values have a name in text and JSON.

/// Declares such an enum: each value with its name, the list of all in their order, and the function that gives the name.
#[macro_export]
macro_rules! named {
    ($(#[$of_enum:meta])* pub enum $Enum:ident { $($(#[$of_value:meta])* $value:ident = $text:literal,)* }
     $(#[$of_name:meta])* $name:ident) => {
        $(#[$of_enum])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub enum $Enum {
            $($(#[$of_value])* #[serde(rename = $text)] $value,)*
        }

        impl $Enum {
            /// All of them, in their order.
            pub const ALL: [$Enum; [$($text),*].len()] = [$($Enum::$value),*];

            $(#[$of_name])*
            pub fn $name(self) -> &'static str {
                match self {
                    $($Enum::$value => $text,)*
                }
            }
        }

        impl std::fmt::Display for $Enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.$name())
            }
        }
    };
}
