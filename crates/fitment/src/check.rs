//! Fitment queries and their responses. Gateways and origin share this code.
//!
//! ```text
//! POST /fitment/check   {"vehicles": ["1000001", "1000002"], "skus": ["S1", {"sku": "S2", "spu": "P1"}]}
//! 200                   {"vehicles":["1000001","1000002"],"skus":[{"sku":"S1","answers":["fits","unknown"]},…]}
//! GET /fitment/skus?vehicle=1000001&after=57
//! 200                   {"vehicle":"1000001","skus":["S1","S2"],"next":"91"}
//! ```

use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use weir_base::id::IdError;

use crate::id::VehicleIdError;
use crate::{SKUS_MAX, Sku, Spu, VEHICLES_MAX, VehicleId};

/// Maximum length of a query body, in bytes: enough for 200 SKUs with their SPUs.
pub const BODY_LEN_MAX: usize = 64 * 1024;

/// Whether a SKU fits a vehicle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Answer {
    /// It fits.
    Fits,
    /// It is known not to fit.
    DoesNot,
    /// Unknown: the SKU or the vehicle is not in the data.
    Unknown,
}

impl Answer {
    /// The label in responses.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Fits => "fits",
            Self::DoesNot => "does_not",
            Self::Unknown => "unknown",
        }
    }
}

/// The stored relation between one SKU and the vehicles of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredAnswer {
    /// Bit `i` is 1 if the SKU fits vehicle `i`, and 0 if it does not.
    Known(u8),
    /// The directory has no such SKU: it is unknown, or stored elsewhere.
    Absent,
    /// The directory names a lost key: the SKU is unknown until it is written again.
    Lost,
}

impl StoredAnswer {
    /// The answer for vehicle `index` of the query, from 0.
    pub fn answer(self, index: usize) -> Answer {
        match self {
            Self::Known(fits) if (fits >> index.min(7)) & 1 == 1 => Answer::Fits,
            Self::Known(_) => Answer::DoesNot,
            Self::Absent | Self::Lost => Answer::Unknown,
        }
    }
}

/// A SKU in a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkuQuery {
    /// The SKU.
    pub sku: Sku,
    /// The SKU's SPU according to the client: a hint that saves a location lookup. A wrong hint costs one more lookup.
    pub spu: Option<Spu>,
}

/// A query: which of these SKUs fit which of these vehicles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The vehicles: 1 to [`VEHICLES_MAX`].
    pub vehicles: Vec<VehicleId>,
    /// The SKUs: 1 to [`SKUS_MAX`].
    pub skus: Vec<SkuQuery>,
}

/// Why a query is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// It is longer than [`BODY_LEN_MAX`].
    #[error("the body is longer than {BODY_LEN_MAX} bytes")]
    TooLong,
    /// It is not JSON, or lacks these members.
    #[error("the body must have the form {{\"vehicles\": [\"1000001\"], \"skus\": [\"S1\"]}}: {0}")]
    Body(String),
    /// No vehicles or too many.
    #[error("vehicles: has {0} entries, must have 1 to {VEHICLES_MAX}")]
    Vehicles(usize),
    /// No SKUs or too many.
    #[error("skus: has {0} entries, must have 1 to {SKUS_MAX}")]
    Skus(usize),
    /// The vehicle id at this index is invalid.
    #[error("vehicles[{0}]: {1}")]
    Vehicle(usize, VehicleIdError),
    /// The SKU at this index is invalid.
    #[error("skus[{0}]: {1}")]
    Sku(usize, IdError),
    /// The SPU at this index is invalid.
    #[error("skus[{0}].spu: {1}")]
    Spu(usize, IdError),
    /// The query string has no valid vehicle.
    #[error("vehicle: {0}")]
    Query(VehicleIdError),
    /// The query string's `after` is not a `next` of a response.
    #[error("after: must be the `next` of the previous answer")]
    After,
}

impl CheckError {
    /// The label in responses, `error`.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooLong => "body_too_long",
            Self::Body(_) => "invalid_body",
            Self::Vehicles(_) => "invalid_vehicle_count",
            Self::Skus(_) => "invalid_sku_count",
            Self::Vehicle(..) | Self::Query(_) => "invalid_vehicle",
            Self::Sku(..) => "invalid_sku",
            Self::Spu(..) => "invalid_spu",
            Self::After => "invalid_after",
        }
    }

    /// The HTTP status of the response.
    pub const fn status(&self) -> u16 {
        match self {
            Self::TooLong => 413,
            Self::Body(_) => 400,
            _ => 422,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text<'a> {
    #[serde(borrow)]
    vehicles: Vec<Cow<'a, str>>,
    #[serde(borrow)]
    skus: Vec<SkuQueryText<'a>>,
}

struct SkuQueryText<'a> {
    sku: Cow<'a, str>,
    spu: Option<Cow<'a, str>>,
}

impl Check {
    /// Parses the body of a query.
    ///
    /// # Errors
    /// If the query is invalid.
    pub fn read(body: &[u8]) -> Result<Self, CheckError> {
        if body.len() > BODY_LEN_MAX {
            return Err(CheckError::TooLong);
        }
        let text: Text<'_> =
            serde_json::from_slice(body).map_err(|error| CheckError::Body(error.to_string()))?;
        if !(1..=VEHICLES_MAX).contains(&text.vehicles.len()) {
            return Err(CheckError::Vehicles(text.vehicles.len()));
        }
        if !(1..=SKUS_MAX).contains(&text.skus.len()) {
            return Err(CheckError::Skus(text.skus.len()));
        }
        let vehicles = text.vehicles.iter().enumerate();
        let vehicles = vehicles.map(|(index, text)| {
            text.parse()
                .map_err(|error| CheckError::Vehicle(index, error))
        });
        let skus = text.skus.iter().enumerate();
        Ok(Self {
            vehicles: vehicles.collect::<Result<_, _>>()?,
            skus: skus
                .map(|(index, text)| text.check(index))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Appends the response as JSON. `answer(sku, vehicle)` is called once per pair, with their indices in the query.
    pub fn write(&self, mut answer: impl FnMut(usize, usize) -> Answer, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"vehicles\":[");
        for (index, vehicle) in self.vehicles.iter().enumerate() {
            comma(index, out);
            push_text(&vehicle.to_string(), out);
        }
        out.extend_from_slice(b"],\"skus\":[");
        for (index, requested) in self.skus.iter().enumerate() {
            comma(index, out);
            out.extend_from_slice(b"{\"sku\":");
            push_text(requested.sku.as_str(), out);
            out.extend_from_slice(b",\"answers\":[");
            for vehicle in 0..self.vehicles.len() {
                comma(vehicle, out);
                push_text(answer(index, vehicle).label(), out);
            }
            out.extend_from_slice(b"]}");
        }
        out.extend_from_slice(b"]}");
    }
}

impl SkuQueryText<'_> {
    fn check(&self, index: usize) -> Result<SkuQuery, CheckError> {
        let sku = Sku::new(self.sku.as_bytes()).map_err(|error| CheckError::Sku(index, error))?;
        let spu = self.spu.as_ref().map(|spu| Spu::new(spu.as_bytes()));
        let spu = spu
            .transpose()
            .map_err(|error| CheckError::Spu(index, error))?;
        Ok(SkuQuery { sku, spu })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for SkuQueryText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SkuQueryVisitor)
    }
}

struct SkuQueryVisitor;

impl<'de> Visitor<'de> for SkuQueryVisitor {
    type Value = SkuQueryText<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a SKU as a string, or {\"sku\", \"spu\"}")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        let sku = Cow::Borrowed(text);
        Ok(SkuQueryText { sku, spu: None })
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        let sku = Cow::Owned(text.into());
        Ok(SkuQueryText { sku, spu: None })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Members<'a> {
            #[serde(borrow)]
            sku: Cow<'a, str>,
            #[serde(borrow)]
            spu: Option<Cow<'a, str>>,
        }
        let Members { sku, spu } =
            Members::deserialize(de::value::MapAccessDeserializer::new(map))?;
        Ok(SkuQueryText { sku, spu })
    }
}

/// A request for the SKUs that fit one vehicle: `GET /fitment/skus?vehicle=&after=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Browse {
    /// The vehicle.
    pub vehicle: VehicleId,
    /// The page starts after this SKU, a number from the previous page; 0: the first page.
    pub after: u64,
}

impl Browse {
    /// Parses the query string, without its `?`. Other parameters are ignored.
    ///
    /// # Errors
    /// If the query string is invalid.
    pub fn read(query: &str) -> Result<Self, CheckError> {
        let parameter = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find_map(|(key, value)| (key == name).then_some(value))
        };
        let vehicle = parameter("vehicle").unwrap_or_default();
        let after = match parameter("after") {
            None => 0,
            Some(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                text.parse().map_err(|_| CheckError::After)?
            }
            Some(_) => return Err(CheckError::After),
        };
        Ok(Self {
            vehicle: vehicle.parse().map_err(CheckError::Query)?,
            after,
        })
    }

    /// Appends a page as JSON. `next`: the `after` of the next page; `None` if this is the last.
    pub fn write<'a>(
        &self,
        skus: impl IntoIterator<Item = &'a str>,
        next: Option<u64>,
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(b"{\"vehicle\":");
        push_text(&self.vehicle.to_string(), out);
        out.extend_from_slice(b",\"skus\":[");
        for (index, sku) in skus.into_iter().enumerate() {
            comma(index, out);
            push_text(sku, out);
        }
        out.push(b']');
        if let Some(next) = next {
            out.extend_from_slice(b",\"next\":");
            push_text(&next.to_string(), out);
        }
        out.push(b'}');
    }
}

fn comma(index: usize, out: &mut Vec<u8>) {
    if index > 0 {
        out.push(b',');
    }
}

/// Appends visible ASCII text as a JSON string.
fn push_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text.bytes() {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    fn refused(body: &str) -> (&'static str, String) {
        let error = Check::read(body.as_bytes()).unwrap_err();
        (error.code(), error.to_string())
    }

    fn vehicles(count: u32) -> String {
        let all: Vec<_> = (1..=count).map(|n| format!("\"{n:07}\"")).collect();
        all.join(",")
    }

    fn skus(count: u32) -> String {
        let all: Vec<_> = (1..=count).map(|n| format!("\"S{n}\"")).collect();
        all.join(",")
    }

    #[test]
    fn check_is_limited_to_five_vehicles_and_200_skus() {
        let body = |v, s| format!(r#"{{"vehicles":[{}],"skus":[{}]}}"#, vehicles(v), skus(s));
        let check = Check::read(body(5, 200).as_bytes()).unwrap();
        assert_eq!((check.vehicles.len(), check.skus.len()), (5, 200));
        for (v, s, code) in [
            (6, 1, "invalid_vehicle_count"),
            (0, 1, "invalid_vehicle_count"),
            (1, 201, "invalid_sku_count"),
            (1, 0, "invalid_sku_count"),
        ] {
            assert_eq!(refused(&body(v, s)).0, code, "{v} {s}");
        }
    }

    #[test]
    fn longest_check_fits_the_body_limit() {
        let name = "x".repeat(64);
        let sku = format!(r#"{{"sku": "{name}", "spu": "{name}"}}"#);
        let all = std::vec![sku; 200].join(", ");
        let body = format!(r#"{{"vehicles":[{}],"skus":[{all}]}}"#, vehicles(5));
        assert!(body.len() < BODY_LEN_MAX / 2);
        Check::read(body.as_bytes()).unwrap();
        assert_eq!(refused(&" ".repeat(BODY_LEN_MAX + 1)).0, "body_too_long");
    }

    #[test]
    fn invalid_check_error_names_the_problem() {
        for (body, code, expected) in [
            ("", "invalid_body", "the form"),
            ("[]", "invalid_body", "the form"),
            (r#"{"vehicles":["1000001"]}"#, "invalid_body", "skus"),
            (
                r#"{"vehicles":["1000001"],"skus":[7]}"#,
                "invalid_body",
                "a SKU as a string",
            ),
            (
                r#"{"vehicles":["1000001"],"skus":[{"spu":"P"}]}"#,
                "invalid_body",
                "sku",
            ),
            (
                r#"{"vehicles":["1000001"],"skus":["S"],"x":1}"#,
                "invalid_body",
                "x",
            ),
            (
                r#"{"vehicles":[1000001],"skus":["S"]}"#,
                "invalid_body",
                "string",
            ),
            (
                r#"{"vehicles":["1000001","100000a"],"skus":["S"]}"#,
                "invalid_vehicle",
                "vehicles[1]: ",
            ),
            (
                r#"{"vehicles":["1000001"],"skus":["S","a b"]}"#,
                "invalid_sku",
                "skus[1]: ",
            ),
            (
                r#"{"vehicles":["1000001"],"skus":["a{b"]}"#,
                "invalid_sku",
                "skus[0]: ",
            ),
            (
                r#"{"vehicles":["1000001"],"skus":[{"sku":"S","spu":"}"}]}"#,
                "invalid_spu",
                "skus[0].spu: ",
            ),
        ] {
            let (actual, response) = refused(body);
            assert_eq!(actual, code, "{body}");
            assert!(response.contains(expected), "{body}: {response}");
        }
        assert_eq!(
            Check::read(b"{\"vehicles\":[\"\xff\"],\"skus\":[]}")
                .unwrap_err()
                .status(),
            400
        );
    }

    #[test]
    fn fitment_answers_keep_the_order_of_the_request() {
        let body = r#"{"skus":["S\"1",{"sku":"S2","spu":"P"},{"sku":"S2"}],"vehicles":["0000007","1000001"]}"#;
        let check = Check::read(body.as_bytes()).unwrap();
        assert_eq!(check.skus[1].spu.as_ref().unwrap().as_str(), "P");
        let stored = [
            StoredAnswer::Known(0b10),
            StoredAnswer::Absent,
            StoredAnswer::Lost,
        ];
        let mut out = Vec::new();
        check.write(|sku, vehicle| stored[sku].answer(vehicle), &mut out);
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let expected = serde_json::json!({
            "vehicles": ["0000007", "1000001"],
            "skus": [
                {"sku": "S\"1", "answers": ["does_not", "fits"]},
                {"sku": "S2", "answers": ["unknown", "unknown"]},
                {"sku": "S2", "answers": ["unknown", "unknown"]},
            ],
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn browse_query_is_read_by_vehicle_and_offset() {
        let browse = Browse::read("after=57&vehicle=1000001&x=1").unwrap();
        assert_eq!((browse.vehicle.number(), browse.after), (1_000_001, 57));
        assert_eq!(Browse::read("vehicle=0000001").unwrap().after, 0);
        for (query, code) in [
            ("", "invalid_vehicle"),
            ("vehicle=12345678", "invalid_vehicle"),
            ("vehicle=100000a", "invalid_vehicle"),
            ("vehicle=1000001&after=", "invalid_after"),
            ("vehicle=1000001&after=+1", "invalid_after"),
            (
                "vehicle=1000001&after=99999999999999999999",
                "invalid_after",
            ),
        ] {
            assert_eq!(Browse::read(query).unwrap_err().code(), code, "{query}");
        }
        let mut out = Vec::new();
        browse.write(["S1", "S\\2"], Some(91), &mut out);
        let expected =
            serde_json::json!({"vehicle": "1000001", "skus": ["S1", "S\\2"], "next": "91"});
        assert_eq!(
            serde_json::from_slice::<serde_json::Value>(&out).unwrap(),
            expected
        );
        out.clear();
        browse.write([], None, &mut out);
        assert_eq!(out, b"{\"vehicle\":\"1000001\",\"skus\":[]}");
    }
}
