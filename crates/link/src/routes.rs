//! The routes of short links.

use alloc::format;
use alloc::string::String;

use crate::code::LinkId;

use crate::redis::link_read::Purpose;

/// Where the origin answers a client's request for a short link that passed a gateway; the link's code follows.
///
/// `prefix_rewrite` in `envoy/shortlink.yaml` has it, too.
pub const LINK_FOLLOW: &str = "/l/";

/// Where the origin tells gateways of a short link that Redis does not know; its domain and code follow. The answer is
/// a [document](crate::redis::document). No gateway routes clients there.
pub const LINK_RECORD: &str = "/link-records/";

/// The parameter of [`LINK_RECORD`] with the [label](Purpose::label) for why it is asked.
const PURPOSE: &str = "for";

/// The parameter of [`LINK_RECORD`] with the click's name.
const CLICK: &str = "click";

/// The path at which a gateway asks the origin for a link.
pub fn link_record(link: &LinkId, purpose: Purpose) -> String {
    let word = purpose.label();
    let link = link.to_path();
    match purpose.click() {
        Some(click) => format!("{LINK_RECORD}{link}?{PURPOSE}={word}&{CLICK}={click}"),
        None => format!("{LINK_RECORD}{link}?{PURPOSE}={word}"),
    }
}

/// Why a link is asked for, by the query string; `None` if it does not say.
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
    fn envoy_rewrites_to_the_route_that_filters_ask_at() {
        let yaml = include_str!("../../../envoy/shortlink.yaml");
        let rewrites: Vec<&str> = yaml
            .split("prefix_rewrite: ")
            .skip(1)
            .filter_map(|rest| rest.split([',', ' ', '}', '\n']).next())
            .collect();
        assert_eq!(rewrites, [LINK_FOLLOW]);
    }

    #[test]
    fn what_a_gateway_asks_the_origin_reads() {
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
