//! Stores the domains as one document.

use weir_link::domain::{Domains, DomainsConfig};

use super::LinkStore;
use weir_origin_core::sql::{Row, SqlError, damaged, sql};

const SELECT: &str = "SELECT version, document FROM link_domain_documents WHERE id = 1";

const SELECT_VERSION: &str = "SELECT version FROM link_domain_documents WHERE id = 1";

const INSERT: &str = "
    INSERT INTO link_domain_documents (id, version, document, changed_at_ms) VALUES (1, 1, ?, ?)";

const UPDATE: &str = "
    UPDATE link_domain_documents SET version = version + 1, document = ?, changed_at_ms = ?
    WHERE id = 1 AND version = ?";

/// The stored domains.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredDomains {
    /// 1, incremented by each change.
    pub version: u64,
    /// The domains.
    pub domains: Domains,
}

/// Stores the domains as one document.
#[derive(Clone, Copy, Debug)]
pub struct DomainStore<'a>(pub(super) &'a LinkStore);

impl DomainStore<'_> {
    /// Stores these domains if there are none yet. Returns whether it did.
    pub async fn seed_domains(self, domains: &Domains, now_ms: u64) -> Result<bool, SqlError> {
        let document = document(domains);
        let insert = sql(INSERT).text(&document).number(now_ms);
        Ok(self.0.db.insert(insert).await?)
    }

    /// Reads the domains; `None`: none are stored.
    pub async fn stored_domains(self) -> Result<Option<StoredDomains>, SqlError> {
        let row = self.0.db.one(sql(SELECT)).await?;
        Ok(row.as_ref().map(stored).transpose()?)
    }

    /// The version of the stored domains; 0 if there are none.
    pub async fn domains_version(self) -> Result<u64, SqlError> {
        let row = self.0.db.one(sql(SELECT_VERSION)).await?;
        Ok(row.map_or(Ok(0), |row| row.number("version"))?)
    }

    /// Replaces this version of the domains. Returns false if the stored version differs.
    pub async fn change_domains(
        self,
        version: u64,
        domains: &Domains,
        now_ms: u64,
    ) -> Result<bool, SqlError> {
        let document = document(domains);
        let update = sql(UPDATE).text(&document).number(now_ms).number(version);
        Ok(self.0.db.execute(update).await? > 0)
    }
}

/// Encodes the domains. The version has its own column.
fn document(domains: &Domains) -> String {
    let mut config = domains.to_config();
    config.version = 0;
    // The domains come from JSON, so the encoding cannot fail.
    serde_json::to_string(&config).unwrap_or_default()
}

fn stored(row: &Row) -> Result<StoredDomains, sqlx::Error> {
    let text = row.text("document")?;
    let config: DomainsConfig =
        serde_json::from_str(&text).map_err(|error| damaged("document", error))?;
    let domains = config.checked();
    Ok(StoredDomains {
        version: row.number("version")?,
        domains: domains.map_err(|error| damaged("document", error))?,
    })
}
