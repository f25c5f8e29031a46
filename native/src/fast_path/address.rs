//! The client's address, by the rules of Envoy's HTTP connection manager.
//!
//! Source: `ConnectionManagerUtility::mutateRequestHeaders` and `Utility::getLastAddressFromXFF` of Envoy 1.40.

use std::borrow::Cow;
use std::net::IpAddr;

/// How the connection manager finds the client's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRules {
    /// `use_remote_address`.
    pub use_remote_address: bool,
    /// `xff_num_trusted_hops`.
    pub trusted_hops: u32,
}

impl AddressRules {
    /// The client's `address:port`. `connection` is the address of the connection, `forwarded` the `X-Forwarded-For` header
    /// as received.
    ///
    /// An address from the header has port 0, as in Envoy.
    pub fn client<'a>(&self, connection: &'a str, forwarded: Option<&[u8]>) -> Cow<'a, str> {
        let skipped = match (self.use_remote_address, self.trusted_hops) {
            (true, 0) => return connection.into(),
            (true, hops) => hops - 1,
            (false, hops) => hops,
        };
        match forwarded.and_then(|forwarded| address_before(forwarded, skipped)) {
            Some(IpAddr::V4(ip)) => format!("{ip}:0").into(),
            Some(IpAddr::V6(ip)) => format!("[{ip}]:0").into(),
            None => connection.into(),
        }
    }
}

/// The last address of the header after `skipped` addresses at its end are left out.
fn address_before(forwarded: &[u8], skipped: u32) -> Option<IpAddr> {
    let text = str::from_utf8(forwarded).ok()?;
    let skipped = usize::try_from(skipped).ok()?;
    text.rsplit(',')
        .nth(skipped)?
        .trim_matches([' ', '\t'])
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_follows_the_connection_manager() {
        let connection = "10.0.0.9:4711";
        for (use_remote_address, trusted_hops, forwarded, expected) in [
            (true, 0, Some("1.1.1.1"), connection),
            (true, 1, Some("1.1.1.1, 2.2.2.2"), "2.2.2.2:0"),
            (true, 2, Some("1.1.1.1, 2.2.2.2"), "1.1.1.1:0"),
            (true, 3, Some("1.1.1.1, 2.2.2.2"), connection),
            (true, 1, None, connection),
            (true, 1, Some("unknown"), connection),
            (true, 1, Some("::1"), "[::1]:0"),
            (false, 0, Some("1.1.1.1, 2.2.2.2"), "2.2.2.2:0"),
            (false, 1, Some("1.1.1.1, 2.2.2.2"), "1.1.1.1:0"),
            (false, 0, None, connection),
        ] {
            let rules = AddressRules {
                use_remote_address,
                trusted_hops,
            };
            let client = rules.client(connection, forwarded.map(str::as_bytes));
            assert_eq!(client, expected, "{rules:?} {forwarded:?}");
        }
    }
}
