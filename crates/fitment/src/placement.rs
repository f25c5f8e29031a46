//! The location of products. Large catalogues are split over several Redis clusters, by product type and merchant.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use serde::Deserialize;
use weir_base::FieldError;
use weir_base::hash::stable_hash;

use crate::{Merchant, ProductType, Spu};

/// The name of a Redis cluster: 1 to 32 of `a-z`, `0-9` and `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cluster(Arc<str>);

impl Cluster {
    /// The cluster that always exists. It contains the routes and the vehicle map.
    pub const HOME: &'static str = "home";

    /// Maximum bytes of a name.
    pub const LEN_MAX: usize = 32;

    /// Checks `name`; `None` if it is invalid.
    pub fn new(name: &str) -> Option<Self> {
        let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        let is_name = (1..=Self::LEN_MAX).contains(&name.len()) && name.bytes().all(allowed);
        is_name.then(|| Self(name.into()))
    }

    /// [`Cluster::HOME`].
    pub fn home() -> Self {
        Self(Self::HOME.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The location of a SKU's relations.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Placement {
    /// The cluster.
    pub cluster: Cluster,
    /// The product.
    pub spu: Spu,
}

/// Rules for the cluster of a product: the first matching rule decides, or else [`Cluster::HOME`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    product_type: Option<ProductType>,
    merchant: Option<Merchant>,
    /// One cluster, or several that split merchants by a hash.
    clusters: Vec<Cluster>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesText {
    rules: Vec<RuleText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    #[serde(rename = "type")]
    product_type: Option<ProductType>,
    merchant: Option<Merchant>,
    cluster: Option<String>,
    split: Option<Vec<String>>,
}

impl Rules {
    /// Parses rules from JSON, such as `{"rules": [{"type": "tyre", "cluster": "own"}, {"split": ["pop-a",
    /// "pop-b"]}]}`: tyres are in `own`, all other goods in one of two clusters, by a hash of the merchant. `known`
    /// lists the existing clusters.
    ///
    /// # Errors
    /// If a field is invalid, with its path.
    pub fn read(json: &str, clusters: &[Cluster]) -> Result<Self, FieldError> {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        let text: RulesText = serde_path_to_error::deserialize(&mut deserializer)
            .map_err(|error| FieldError::new(alloc::format!("{}", error.path()), error.inner()))?;
        let rules = text.rules.into_iter().enumerate();
        let rules = rules.map(|(index, rule)| {
            rule.check(clusters)
                .map_err(|problem| FieldError::new(alloc::format!("rules[{index}]"), problem))
        });
        rules.collect::<Result<_, _>>().map(Self)
    }

    /// The cluster of a product.
    pub fn cluster(&self, product_type: &ProductType, merchant: &Merchant) -> Cluster {
        let rule = self.0.iter().find(|rule| {
            let is_type = rule
                .product_type
                .as_ref()
                .is_none_or(|of| of == product_type);
            is_type && rule.merchant.as_ref().is_none_or(|of| of == merchant)
        });
        let cluster = rule.and_then(|rule| {
            let count = rule.clusters.len() as u64;
            let at = stable_hash(merchant.as_str().as_bytes()).checked_rem(count)?;
            rule.clusters.get(usize::try_from(at).ok()?).cloned()
        });
        cluster.unwrap_or_else(Cluster::home)
    }
}

impl RuleText {
    fn check(self, clusters: &[Cluster]) -> Result<Rule, String> {
        let names = match (self.cluster, self.split) {
            (Some(cluster), None) => Vec::from([cluster]),
            (None, Some(split)) if !split.is_empty() => split,
            _ => return Err("needs either cluster or a non-empty split".to_owned()),
        };
        let named = |name: String| {
            let cluster = Cluster::new(&name).filter(|cluster| clusters.contains(cluster));
            cluster.ok_or_else(|| alloc::format!("unknown cluster \"{name}\""))
        };
        Ok(Rule {
            product_type: self.product_type,
            merchant: self.merchant,
            clusters: names.into_iter().map(named).collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::format;
    use std::string::ToString;

    fn clusters() -> Vec<Cluster> {
        ["home", "own", "pop-a", "pop-b"]
            .into_iter()
            .filter_map(Cluster::new)
            .collect()
    }

    #[test]
    fn first_matching_placement_rule_selects_the_cluster() {
        let rules = r#"{"rules": [
            {"type": "tyre", "merchant": "m1", "cluster": "home"},
            {"type": "tyre", "cluster": "own"},
            {"split": ["pop-a", "pop-b"]}
        ]}"#;
        let rules = Rules::read(rules, &clusters()).unwrap();
        let of = |product_type: &str, merchant: &str| {
            let merchant = Merchant::new(merchant).unwrap();
            let product_type = ProductType::new(product_type).unwrap();
            rules.cluster(&product_type, &merchant).to_string()
        };
        assert_eq!(of("tyre", "m1"), "home");
        assert_eq!(of("tyre", "m2"), "own");
        let mut counts = BTreeMap::<String, u32>::new();
        for number in 0..1_000 {
            *counts.entry(of("oil", &format!("m{number}"))).or_default() += 1;
        }
        assert!(
            counts.len() == 2 && counts.values().all(|count| *count > 400),
            "{counts:?}"
        );
        let none = Rules::default();
        let merchant = Merchant::new("m").unwrap();
        let cluster = none.cluster(&ProductType::new("oil").unwrap(), &merchant);
        assert_eq!(cluster, Cluster::home());
    }

    #[test]
    fn invalid_placement_rule_is_refused_with_its_path() {
        let refused = |json: &str| Rules::read(json, &clusters()).unwrap_err().to_string();
        for (json, path) in [
            (
                r#"{"rules": [{"cluster": "none"}]}"#,
                "rules[0]: unknown cluster \"none\"",
            ),
            (r#"{"rules": [{"type": "a"}]}"#, "rules[0]: needs either"),
            (r#"{"rules": [{"split": []}]}"#, "rules[0]: needs either"),
            (
                r#"{"rules": [{"split": ["own"], "cluster": "own"}]}"#,
                "rules[0]: needs either",
            ),
            (
                r#"{"rules": [{"type": "a b", "cluster": "own"}]}"#,
                "rules[0].type: ",
            ),
            (r#"{"rules": [{"brand": "a"}]}"#, "rules[0].brand: "),
            ("[", ""),
        ] {
            let response = refused(json);
            assert!(response.starts_with(path), "{json}: {response}");
        }
    }
}
