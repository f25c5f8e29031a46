//! Signs the IDs of clicks on tracked links.

use alloc::string::String;

use crate::cache::LinkName;
use crate::click::ClickId;
use crate::click_tag::ClickTag;
use crate::record::Link;
use weir_base::key::KeyRing;

use crate::engine::request::Fields;

/// Signs click IDs, if keys are configured.
#[derive(Debug)]
pub(crate) struct Tagger {
    pub(crate) keys: Option<KeyRing>,
    /// The ID of the next click. Its counter is unique to this engine.
    pub(crate) next: ClickId,
}

impl Tagger {
    /// The tag of this request, if it is a click on a tracked link.
    pub(crate) fn tag(
        &mut self,
        link: &Link,
        name: &LinkName,
        fields: &Fields<'_>,
        now_ms: u64,
    ) -> Option<String> {
        let keys = self.keys.as_ref().filter(|_| link.is_tracked)?;
        if !fields.is_click() {
            return None;
        }
        let click = self.next;
        self.next.sequence = click.sequence.wrapping_add(1);
        let tag = ClickTag {
            link: name.to_link()?,
            at_ms: now_ms,
            click,
        };
        Some(tag.sign(keys))
    }
}
