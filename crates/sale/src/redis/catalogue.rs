//! The catalogue of sales, at [`keys::catalogue`](crate::redis::keys::catalogue).

use alloc::vec::Vec;

use crate::sale::{Catalogue, CatalogueError};

/// Why a catalogue is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is not a catalogue in JSON.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// A field is out of its bounds.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
}

/// Encodes the catalogue for gateways.
///
/// # Errors
/// When JSON serialization fails.
pub fn write(catalogue: &Catalogue) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(catalogue)
}

/// Decodes a catalogue.
///
/// # Errors
/// See [`ReadError`].
pub fn read(json: &[u8]) -> Result<Catalogue, ReadError> {
    Ok(serde_json::from_slice::<Catalogue>(json)?.checked()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sale::{Band, Degrade, Sale, SaleState};
    use alloc::string::ToString;
    use weir_base::id::SaleId;

    fn catalogue(shards: u32) -> Catalogue {
        let sale = Sale {
            id: SaleId::new("s").unwrap(),
            starts_at_ms: 1,
            ends_at_ms: 2,
            shards,
            first_shard: 0,
            user_cap: 3,
            state: SaleState::Open,
            reservation: true,
            token: true,
            challenge: None,
            degrade: Degrade::default(),
            sku: None,
            cold: false,
            band: Band::default(),
            paused: false,
        };
        Catalogue {
            version: 7,
            sales: [sale].into(),
            ..Catalogue::default()
        }
    }

    #[test]
    fn written_catalogue_is_read_and_invalid_one_is_reported() {
        let written = write(&catalogue(4)).unwrap();
        assert_eq!(read(&written).unwrap(), catalogue(4));
        let refused = read(&write(&catalogue(0)).unwrap()).unwrap_err();
        assert!(refused.to_string().contains("shards"), "{refused}");
        assert!(matches!(read(b"{"), Err(ReadError::Json(_))));
    }
}
