//! What people are told, by code and language: one table for gateways and the origin. Codes are for programs, and the same
//! in every language.
//!
//! A gateway has the sentences of verdicts alone, so that its filter does not carry the others.

use weir_base::language::Language;

use crate::verdict::Verdict;

/// A sentence in each language, in the order of [`Language::ALL`].
pub type Sentence = [&'static str; 3];

impl Verdict {
    /// One sentence for the person at the other end.
    pub const fn message(self, language: Language) -> &'static str {
        let [english, chinese, german] = self.sentence();
        match language {
            Language::English => english,
            Language::Chinese => chinese,
            Language::German => german,
        }
    }

    const fn sentence(self) -> Sentence {
        match self {
            Self::Granted => [
                "a unit is held for you",
                "已为您保留一件",
                "Ein Stück ist für Sie reserviert.",
            ],
            Self::GrantedAgain => [
                "the unit that is held for you already",
                "已经为您保留的那一件",
                "Das Stück, das schon für Sie reserviert ist.",
            ],
            Self::UnknownSale => [
                "there is no such sale",
                "没有这个活动",
                "Diesen Verkauf gibt es nicht.",
            ],
            Self::InvalidUser => [
                "the request does not say who you are; sign in and try again",
                "请求中没有您的身份，请登录后重试",
                "Wir wissen nicht, wer Sie sind. Bitte melden Sie sich an und versuchen Sie es noch einmal.",
            ],
            Self::NotStarted => [
                "the sale has not started yet",
                "活动尚未开始",
                "Der Verkauf hat noch nicht begonnen.",
            ],
            Self::Ended => ["the sale is over", "活动已结束", "Der Verkauf ist beendet."],
            Self::Closed => [
                "the sale is closed",
                "活动已关闭",
                "Der Verkauf ist geschlossen.",
            ],
            Self::Draining => [
                "the sale takes no new buyers any more",
                "活动不再接受新的买家",
                "Der Verkauf nimmt keine neuen Käufer mehr an.",
            ],
            Self::StaticPage => [
                "the sale is paused; please try again later",
                "活动已暂停，请稍后再试",
                "Der Verkauf macht Pause. Bitte versuchen Sie es später noch einmal.",
            ],
            Self::Paused => [
                "the sale is paused while its orders are checked; please try again later",
                "活动已暂停，正在核对订单，请稍后再试",
                "Der Verkauf macht Pause, solange wir Bestellungen prüfen. Bitte versuchen Sie es später noch einmal.",
            ],
            Self::SoldOut => ["sold out", "已售罄", "Ausverkauft."],
            Self::InvalidToken => [
                "the order token is missing or not valid; go to the checkout again",
                "下单令牌缺失或无效，请重新进入结算页",
                "Die Bestellmarke fehlt oder gilt nicht. Bitte gehen Sie noch einmal zur Kasse.",
            ],
            Self::TokenTooYoung => [
                "the order token does not count yet; please send it again in a moment",
                "下单令牌尚未生效，请稍后用同一令牌重试",
                "Die Bestellmarke gilt noch nicht. Bitte senden Sie sie gleich noch einmal.",
            ],
            Self::ChallengeRequired => [
                "solve the challenge first, then go to the checkout again",
                "请先完成验证，再进入结算页",
                "Bitte lösen Sie erst die Aufgabe und gehen Sie dann noch einmal zur Kasse.",
            ],
            Self::InvalidIdempotencyKey => [
                "the header Idempotency-Key must be 1 to 128 letters, digits or -_.~:+/=@",
                "请求头 Idempotency-Key 须为 1 至 128 个字母、数字或 -_.~:+/=@",
                "Der Header Idempotency-Key muss aus 1 bis 128 Buchstaben, Ziffern oder -_.~:+/=@ bestehen.",
            ],
            Self::InvalidQuantity => [
                "the header x-weir-quantity must be a whole number of at least 1",
                "请求头 x-weir-quantity 须为不小于 1 的整数",
                "Der Header x-weir-quantity muss eine ganze Zahl ab 1 sein.",
            ],
            Self::InProgress => [
                "another order of yours is not decided yet; please try again in a moment",
                "您的另一笔订单尚在处理，请稍后再试",
                "Über eine andere Bestellung von Ihnen ist noch nicht entschieden. Bitte versuchen Sie es gleich noch einmal.",
            ],
            Self::RateLimited => [
                "too many requests; please wait a moment",
                "请求过于频繁，请稍候",
                "Zu viele Anfragen. Bitte warten Sie einen Moment.",
            ],
            Self::Blocked => [
                "you may not buy in this sale, or not yet",
                "您不能参加本次活动，或暂时不能",
                "Sie dürfen in diesem Verkauf nicht kaufen, oder noch nicht.",
            ],
            Self::NotReserved => [
                "only those who have reserved may buy",
                "只有已预约的用户才能购买",
                "Kaufen darf nur, wer sich vorgemerkt hat.",
            ],
            Self::CapReached => [
                "you already have as many units as one person may have",
                "您已达到每人限购数量",
                "Sie haben schon so viele Stücke, wie eine Person haben darf.",
            ],
            Self::SkuInSale => [
                "this article is part of a sale; please order it there",
                "该商品正在参加活动，请在活动中下单",
                "Dieser Artikel gehört zu einem Verkauf. Bitte bestellen Sie ihn dort.",
            ],
            Self::TooFew => [
                "fewer units are left than you want; please ask for fewer",
                "剩余数量不足，请减少购买数量",
                "Es sind weniger Stücke übrig, als Sie möchten. Bitte wählen Sie weniger.",
            ],
            Self::AllReserved => [
                "all units are reserved right now; one may come back, so please try again",
                "商品已全部被预留，若有释放即可购买，请稍后重试",
                "Gerade sind alle Stücke reserviert. Vielleicht wird eines frei: Bitte versuchen Sie es noch einmal.",
            ],
            Self::Overloaded => [
                "too busy right now; please try again",
                "当前过于繁忙，请重试",
                "Gerade ist zu viel los. Bitte versuchen Sie es noch einmal.",
            ],
            Self::Unavailable => [
                "no answer could be had; please try again: with the same Idempotency-Key you never buy twice",
                "未能得到结果，请重试：使用相同的 Idempotency-Key 绝不会重复购买",
                "Es war keine Antwort zu bekommen. Bitte versuchen Sie es noch einmal: Mit demselben Idempotency-Key kaufen Sie nie doppelt.",
            ],
            Self::Misconfigured => [
                "no orders can be taken here right now; please try again later",
                "此处暂时无法下单，请稍后再试",
                "Hier können gerade keine Bestellungen angenommen werden. Bitte versuchen Sie es später noch einmal.",
            ],
            Self::TokenMinted => [
                "an order token for you",
                "您的下单令牌",
                "Eine Bestellmarke für Sie.",
            ],
        }
    }
}

/// What the origin says beyond verdicts on the routes of buyers. In English it says more than this where there is more to say.
const OF_ORIGIN: &[(&str, Sentence)] = &[
    (
        "barred",
        [
            "you may not buy from this sale: you are blocked, or have not reserved",
            "您不能参加本次活动：您已被限制，或没有预约",
            "Sie dürfen in diesem Verkauf nicht kaufen: Sie sind gesperrt oder haben sich nicht vorgemerkt.",
        ],
    ),
    (
        "claim_invalid",
        [
            "the claim is not one that this origin's gateways signed",
            "该请求未经本站网关签名",
            "Kein Gateway dieses Ursprungs hat diese Anfrage unterschrieben.",
        ],
    ),
    (
        "claim_missing",
        [
            "orders come with a gateway's signed claim",
            "订单须经网关提交",
            "Bestellungen kommen über ein Gateway.",
        ],
    ),
    (
        "claim_released",
        [
            "the claim has ended and never becomes an order; please try again",
            "为您保留的时间已过，请重试",
            "Ihr Stück wurde nicht länger zurückgehalten. Bitte versuchen Sie es noch einmal.",
        ],
    ),
    (
        "cooling_down",
        [
            "you did not pay an order in time; please wait before you buy again",
            "您有订单未按时付款，请稍候再购买",
            "Sie haben eine Bestellung nicht rechtzeitig bezahlt. Bitte warten Sie, bevor Sie wieder kaufen.",
        ],
    ),
    (
        "draw_open",
        [
            "reservations have not ended: the list is not closed",
            "预约尚未结束，名单尚未确定",
            "Die Vormerkungen laufen noch, die Liste steht noch nicht fest.",
        ],
    ),
    (
        "group_cap",
        [
            "you would have more units of these sales together than one person may have",
            "您在这些活动中的购买数量将超过每人限购数量",
            "Sie hätten von diesen Verkäufen zusammen mehr Stücke, als eine Person haben darf.",
        ],
    ),
    (
        "idempotency_key_reused",
        [
            "this Idempotency-Key came with another request before; use a new one for a new request",
            "此 Idempotency-Key 已用于另一请求，新的请求请使用新的键",
            "Dieser Idempotency-Key kam schon mit einer anderen Anfrage. Nehmen Sie für eine neue Anfrage einen neuen.",
        ],
    ),
    (
        "invalid_body",
        [
            "the body cannot be read",
            "无法读取请求内容",
            "Der Inhalt der Anfrage ist nicht lesbar.",
        ],
    ),
    (
        "invalid_payload",
        [
            "the body is not what the sale wants",
            "提交的内容不符合活动要求",
            "Die Angaben sind nicht die, die der Verkauf verlangt.",
        ],
    ),
    (
        "invalid_query",
        [
            "the query string cannot be read, or asks for what cannot be",
            "查询参数无法读取或不被允许",
            "Die Parameter der Anfrage sind nicht lesbar oder nicht erlaubt.",
        ],
    ),
    (
        "no_draw",
        [
            "there is no such sale, or it draws nobody",
            "没有这个活动，或活动不抽签",
            "Diesen Verkauf gibt es nicht, oder er lost nicht.",
        ],
    ),
    (
        "no_method",
        [
            "this path does not take this method",
            "此路径不支持该方法",
            "Dieser Pfad nimmt diese Methode nicht an.",
        ],
    ),
    (
        "no_reservation",
        [
            "nobody needs to reserve for this sale",
            "本次活动无需预约",
            "Für diesen Verkauf muss sich niemand vormerken.",
        ],
    ),
    (
        "no_route",
        [
            "there is nothing at this path",
            "此路径下没有内容",
            "Unter diesem Pfad gibt es nichts.",
        ],
    ),
    (
        "order_cancelled",
        [
            "the order was cancelled before",
            "订单已取消",
            "Die Bestellung wurde schon storniert.",
        ],
    ),
    (
        "order_expired",
        [
            "the order has expired before",
            "订单已过期",
            "Die Frist der Bestellung ist abgelaufen.",
        ],
    ),
    (
        "order_paid",
        [
            "the order is paid, and stays",
            "订单已付款，不能更改",
            "Die Bestellung ist bezahlt und bleibt bestehen.",
        ],
    ),
    (
        "payments_not_configured",
        [
            "nobody can pay here: no payment provider is set up",
            "此处尚未开通付款",
            "Hier kann niemand bezahlen: Es ist kein Zahlungsanbieter eingerichtet.",
        ],
    ),
    (
        "redis_unavailable",
        [
            "Redis did not answer; please try again",
            "服务暂时没有响应，请重试",
            "Der Dienst hat nicht geantwortet. Bitte versuchen Sie es noch einmal.",
        ],
    ),
    (
        "reservation_closed",
        [
            "reservations have ended",
            "预约已结束",
            "Vormerkungen sind nicht mehr möglich.",
        ],
    ),
    (
        "reservation_not_open",
        [
            "reservations have not begun",
            "预约尚未开始",
            "Vormerkungen sind noch nicht möglich.",
        ],
    ),
    (
        "sql_unavailable",
        [
            "the database did not answer; please try again",
            "服务暂时没有响应，请重试",
            "Der Dienst hat nicht geantwortet. Bitte versuchen Sie es noch einmal.",
        ],
    ),
    (
        "timeout",
        [
            "not done in time, the outcome is not known; please try again",
            "未能及时完成，结果未知，请重试",
            "Das dauerte zu lange, und der Ausgang ist nicht bekannt. Bitte versuchen Sie es noch einmal.",
        ],
    ),
    (
        "unknown_order",
        [
            "you have no such order",
            "您没有这笔订单",
            "Diese Bestellung haben Sie nicht.",
        ],
    ),
    (
        "unknown_reservation",
        [
            "you have no reservation for this sale",
            "您没有预约本次活动",
            "Sie haben sich für diesen Verkauf nicht vorgemerkt.",
        ],
    ),
    (
        "unpaid_holds",
        [
            "you did not pay several orders in time, and may not buy in this sale again",
            "您有多笔订单未按时付款，不能再参加本次活动",
            "Sie haben mehrere Bestellungen nicht rechtzeitig bezahlt und dürfen in diesem Verkauf nicht mehr kaufen.",
        ],
    ),
    (
        "user_cap",
        [
            "you have all units that one user may have",
            "您已达到每人限购数量",
            "Sie haben schon so viele Stücke, wie eine Person haben darf.",
        ],
    ),
    (
        "user_invalid",
        [
            "the user is not one that this origin's gateways signed",
            "您的身份未经本站网关确认，请重新登录",
            "Kein Gateway dieses Ursprungs kennt Sie. Bitte melden Sie sich neu an.",
        ],
    ),
    (
        "user_missing",
        [
            "requests come with a user that a gateway signed",
            "请求中没有您的身份，请登录后重试",
            "Wir wissen nicht, wer Sie sind. Bitte melden Sie sich an und versuchen Sie es noch einmal.",
        ],
    ),
];

/// The sentence that goes with a code, if there is one.
pub fn message(code: &str, language: Language) -> Option<&'static str> {
    if let Some(verdict) = Verdict::ALL.into_iter().find(|v| v.label() == code) {
        return Some(verdict.message(language));
    }
    let (_, sentence) = OF_ORIGIN.iter().find(|(known, _)| *known == code)?;
    let languages = Language::ALL.into_iter().zip(sentence);
    let mut spoken = languages.filter(|(known, _)| *known == language);
    spoken.next().map(|(_, sentence)| *sentence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    fn codes() -> Vec<&'static str> {
        let verdicts = Verdict::ALL.into_iter().map(Verdict::label);
        let origin = OF_ORIGIN.iter().map(|(code, _)| *code);
        verdicts.chain(origin).collect()
    }

    #[test]
    fn each_code_stands_once_and_says_something_in_each_language() {
        let codes = codes();
        let distinct: BTreeSet<&str> = codes.iter().copied().collect();
        assert_eq!(distinct.len(), codes.len());
        for code in codes {
            let said = Language::ALL.map(|language| message(code, language).unwrap());
            let distinct: BTreeSet<&str> = said.into_iter().collect();
            assert_eq!(distinct.len(), said.len(), "{code}: {said:?}");
            assert!(!distinct.contains(""), "{code}");
        }
        assert_eq!(message("no_such_code", Language::German), None);
    }

    #[test]
    fn a_sentence_is_of_its_language() {
        for code in codes() {
            let said = |language| message(code, language).unwrap();
            assert!(said(Language::English).is_ascii(), "{code}");
            assert!(!said(Language::Chinese).is_ascii(), "{code}");
            let german = said(Language::German);
            assert!(german.ends_with('.'), "{code}: a sentence, with its stop");
            assert!(german.starts_with(char::is_uppercase), "{code}");
        }
    }

    #[test]
    fn each_verdict_says_something_of_its_own() {
        for language in Language::ALL {
            let said: BTreeSet<_> = Verdict::ALL.iter().map(|v| v.message(language)).collect();
            assert_eq!(said.len(), Verdict::ALL.len());
        }
    }
}
