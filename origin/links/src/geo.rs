//! Locates addresses and finds their network operators, with databases in MaxMind's format. GeoLite2, DB-IP and others
//! publish such databases. The origin loads them into memory at start-up.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use maxminddb::{MaxMindDbError, Reader};
use serde::Deserialize;

/// The configured databases. Cloning is cheap.
#[derive(Clone, Default)]
pub struct Geo {
    cities: Option<Arc<Reader<Vec<u8>>>>,
    operators: Option<Arc<Reader<Vec<u8>>>>,
}

impl fmt::Debug for Geo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Geo")
            .field("has_cities", &self.cities.is_some())
            .field("has_operators", &self.operators.is_some())
            .finish()
    }
}

/// A database cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{flag}: {}: {source}", path.display())]
pub struct GeoError {
    flag: &'static str,
    path: PathBuf,
    source: Box<MaxMindDbError>,
}

/// The record of a city or country.
#[derive(Deserialize)]
struct GeoRecord<'a> {
    #[serde(borrow)]
    country: Option<Coded<'a>>,
    subdivisions: Option<Vec<Coded<'a>>>,
}

#[derive(Deserialize)]
struct Coded<'a> {
    iso_code: Option<&'a str>,
}

/// The record of a network.
#[derive(Deserialize)]
struct Network<'a> {
    autonomous_system_number: Option<u32>,
    autonomous_system_organization: Option<&'a str>,
}

impl Geo {
    /// Opens the databases at these paths: one of cities or countries, one of autonomous systems.
    ///
    /// # Errors
    /// Names the flag and the unusable file.
    pub fn open(cities: Option<&Path>, operators: Option<&Path>) -> Result<Self, GeoError> {
        Ok(Self {
            cities: open("--geo-city-db", cities)?,
            operators: open("--geo-asn-db", operators)?,
        })
    }

    /// The ISO 3166-2 region, such as `DE-BE`, or only the country. `None` if neither is known or the record is
    /// invalid.
    pub fn region(&self, address: IpAddr) -> Option<String> {
        let place: GeoRecord<'_> = self
            .cities
            .as_ref()?
            .lookup(address)
            .ok()?
            .decode()
            .ok()??;
        let country = place.country?.iso_code?;
        let largest = place.subdivisions.as_deref().unwrap_or_default().first();
        Some(match largest.and_then(|place| place.iso_code) {
            Some(subdivision) => format!("{country}-{subdivision}"),
            None => country.to_owned(),
        })
    }

    /// The name of the network operator, or its number, such as `AS64500`.
    pub fn operator(&self, address: IpAddr) -> Option<String> {
        let found = self.operators.as_ref()?.lookup(address).ok()?;
        let network: Network<'_> = found.decode().ok()??;
        let number = network.autonomous_system_number;
        let name = network.autonomous_system_organization.map(str::to_owned);
        name.or_else(|| number.map(|number| format!("AS{number}")))
    }
}

fn open(flag: &'static str, path: Option<&Path>) -> Result<Option<Arc<Reader<Vec<u8>>>>, GeoError> {
    let Some(path) = path else { return Ok(None) };
    let reader = Reader::open_readfile(path).map_err(|source| GeoError {
        flag,
        path: path.to_owned(),
        source: Box::new(source),
    })?;
    Ok(Some(Arc::new(reader)))
}
