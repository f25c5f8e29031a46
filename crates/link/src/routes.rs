//! The routes of short links.

use alloc::format;
use alloc::string::String;

use crate::code::LinkId;

use crate::redis::link_read::Purpose;

/// The origin's route for client requests for short links that passed a gateway; the link's code follows.
///
/// `prefix_rewrite` in `envoy/shortlink.yaml` contains it, too.
pub const LINK_FOLLOW: &str = "/l/";

/// The origin's route for gateway lookups of short links that are not in Redis; domain and code follow. The response is
/// a [document](crate::redis::document). Gateways do not route clients to it.
pub const LINK_RECORD: &str = "/link-records/";

/// The parameter of [`LINK_RECORD`] with the purpose's [label](Purpose::label).
const PURPOSE: &str = "for";

/// The parameter of [`LINK_RECORD`] with the click ID.
const CLICK: &str = "click";

/// The path of a gateway's lookup at the origin.
pub fn link_record(link: &LinkId, purpose: Purpose) -> String {
    let word = purpose.label();
    let link = link.to_path();
    match purpose.click() {
        Some(click) => format!("{LINK_RECORD}{link}?{PURPOSE}={word}&{CLICK}={click}"),
        None => format!("{LINK_RECORD}{link}?{PURPOSE}={word}"),
    }
}

/// Parses a lookup's purpose from the query string; `None` if it is missing or invalid.
pub fn link_purpose(query: &str) -> Option<Purpose> {
    let parameter = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find_map(|(key, value)| (key == name).then_some(value))
    };
    match parameter(PURPOSE)? {
        "look" => Some(Purpose::Look),
        "renew" => Some(Purpose::Renew),
        "click" => Some(Purpose::Click(parameter(CLICK)?.parse().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::click::ClickId;

    #[test]
    fn envoy_rewrites_to_the_follow_route_of_the_filters() {
        let yaml = include_str!("../../../envoy/shortlink.yaml");
        let rewrites: Vec<&str> = yaml
            .split("prefix_rewrite: ")
            .skip(1)
            .filter_map(|rest| rest.split([',', ' ', '}', '\n']).next())
            .collect();
        assert_eq!(rewrites, [LINK_FOLLOW]);
    }

    #[test]
    fn origin_parses_the_lookup_path_of_a_gateway() {
        let click = ClickId {
            counter: 7,
            sequence: 9,
        };
        let link = "s/aZ3k9Qx".parse().unwrap();
        for purpose in [Purpose::Look, Purpose::Renew, Purpose::Click(click)] {
            let path = link_record(&link, purpose);
            let (path, query) = path.split_once('?').unwrap();
            assert_eq!(path, "/link-records/s/aZ3k9Qx");
            assert_eq!(link_purpose(query), Some(purpose));
        }
        let nested = "s/spring/24".parse().unwrap();
        let path = link_record(&nested, Purpose::Look);
        assert_eq!(path, "/link-records/s/spring%2F24?for=look");
        for bad in ["", "for=", "for=click", "for=click&click=7", "click=7-9"] {
            assert_eq!(link_purpose(bad), None, "{bad}");
        }
    }
}
