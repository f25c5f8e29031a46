//! Messages for users, by code and language: one table for gateways and the origin. Codes are for programs, and
//! independent of the language.
//!
//! A gateway uses only the messages of verdicts, so that its filter does not include the others.

use weir_base::language::Language;

use crate::verdict::Verdict;

/// A sentence in each language, in the order of [`Language::ALL`].
pub type Sentence = [&'static str; 3];

impl Verdict {
    /// One sentence for the user.
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
                "a unit is already held for you",
                "此前已为您保留一件",
                "Ein Stück ist bereits für Sie reserviert.",
            ],
            Self::UnknownSale => [
                "there is no such sale",
                "该活动不存在",
                "Diesen Verkauf gibt es nicht.",
            ],
            Self::InvalidUser => [
                "you are not signed in; please sign in and try again",
                "您尚未登录，请登录后重试",
                "Sie sind nicht angemeldet. Bitte melden Sie sich an und versuchen Sie es erneut.",
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
                "the sale no longer accepts new buyers",
                "活动已停止接受新的买家",
                "Der Verkauf nimmt keine neuen Käufer mehr an.",
            ],
            Self::StaticPage => [
                "the sale is paused; please try again later",
                "活动已暂停，请稍后再试",
                "Der Verkauf ist unterbrochen. Bitte versuchen Sie es später erneut.",
            ],
            Self::Paused => [
                "the sale is paused while we check its orders; please try again later",
                "我们正在核对订单，活动暂停，请稍后再试",
                "Der Verkauf ist unterbrochen, während wir Bestellungen prüfen. Bitte versuchen Sie es später erneut.",
            ],
            Self::SoldOut => ["sold out", "已售罄", "Ausverkauft."],
            Self::InvalidToken => [
                "the order token is missing or invalid; please go to the checkout again",
                "下单令牌缺失或无效，请重新进入结算页",
                "Ihre Bestellberechtigung fehlt oder ist ungültig. Bitte gehen Sie erneut zur Kasse.",
            ],
            Self::TokenTooYoung => [
                "the order token is not valid yet; please send it again in a moment",
                "下单令牌尚未生效，请稍后用同一令牌重试",
                "Ihre Bestellberechtigung gilt noch nicht. Bitte versuchen Sie es gleich erneut.",
            ],
            Self::ChallengeRequired => [
                "please solve the challenge, then go to the checkout again",
                "请先完成安全验证，再重新进入结算页",
                "Bitte schließen Sie zuerst die Sicherheitsprüfung ab und gehen Sie dann erneut zur Kasse.",
            ],
            Self::InvalidIdempotencyKey => [
                "the header Idempotency-Key must be 1 to 128 letters, digits or -_.~:+/=@",
                "请求头 Idempotency-Key 须为 1 至 128 个字母、数字或 -_.~:+/=@",
                "Der Header Idempotency-Key muss aus 1 bis 128 Buchstaben, Ziffern oder -_.~:+/=@ bestehen.",
            ],
            Self::InvalidQuantity => [
                "the header x-weir-quantity must be an integer of at least 1",
                "请求头 x-weir-quantity 须为不小于 1 的整数",
                "Der Header x-weir-quantity muss eine ganze Zahl größer als 0 sein.",
            ],
            Self::InProgress => [
                "another order of yours is still in progress; please try again in a moment",
                "您的另一笔订单仍在处理中，请稍后再试",
                "Eine andere Bestellung von Ihnen wird noch bearbeitet. Bitte versuchen Sie es gleich erneut.",
            ],
            Self::RateLimited => [
                "too many requests; please wait a moment",
                "请求过于频繁，请稍候",
                "Zu viele Anfragen. Bitte warten Sie einen Moment.",
            ],
            Self::Blocked => [
                "you cannot buy in this sale, or not yet",
                "您无法参加本次活动，或暂时无法参加",
                "Sie können in diesem Verkauf nicht oder noch nicht kaufen.",
            ],
            Self::NotReserved => [
                "only users with a reservation can buy",
                "只有已预约的用户才能购买",
                "Nur vorgemerkte Personen können kaufen.",
            ],
            Self::CapReached => [
                "you have already reached the limit per person",
                "您已达到每人限购数量",
                "Sie haben die Höchstmenge pro Person bereits erreicht.",
            ],
            Self::SkuInSale => [
                "this item is part of a sale; please order it there",
                "该商品正在参加活动，请在活动中下单",
                "Dieser Artikel ist Teil eines Aktionsverkaufs. Bitte bestellen Sie ihn dort.",
            ],
            Self::TooFew => [
                "not enough units left; please order fewer",
                "剩余数量不足，请减少购买数量",
                "Es sind nicht mehr genug Stücke verfügbar. Bitte verringern Sie die Menge.",
            ],
            Self::AllReserved => [
                "all units are currently reserved; one may become free, so please try again",
                "商品目前已全部被预留，可能会有名额释放，请稍后重试",
                "Derzeit sind alle Stücke reserviert. Vielleicht wird eines frei. Bitte versuchen Sie es erneut.",
            ],
            Self::Overloaded => [
                "too busy right now; please try again",
                "当前访问人数过多，请稍后重试",
                "Derzeit ist zu viel los. Bitte versuchen Sie es erneut.",
            ],
            Self::Unavailable => [
                "the outcome is unknown; please try again: with the same Idempotency-Key you never buy twice",
                "结果未知，请重试：使用相同的 Idempotency-Key 不会重复购买",
                "Das Ergebnis ist nicht bekannt. Bitte versuchen Sie es erneut: Mit demselben Idempotency-Key kaufen Sie nie doppelt.",
            ],
            Self::Misconfigured => [
                "orders are not possible here right now; please try again later",
                "此处暂时无法下单，请稍后再试",
                "Bestellungen sind hier derzeit nicht möglich. Bitte versuchen Sie es später erneut.",
            ],
            Self::TokenMinted => [
                "your order token",
                "您的下单令牌",
                "Ihre Bestellberechtigung.",
            ],
        }
    }
}

/// The origin's further messages on buyer routes. In English the origin adds details where available.
const OF_ORIGIN: &[(&str, Sentence)] = &[
    (
        "barred",
        [
            "you cannot buy in this sale: you are blocked or have no reservation",
            "您无法参加本次活动：您已被限制或没有预约",
            "Sie können in diesem Verkauf nicht kaufen: Sie sind gesperrt oder nicht vorgemerkt.",
        ],
    ),
    (
        "claim_invalid",
        [
            "the claim is not signed by a known gateway",
            "该请求没有有效的网关签名",
            "Die Anfrage hat keine gültige Gateway-Signatur.",
        ],
    ),
    (
        "claim_missing",
        [
            "the claim is missing: order through a gateway",
            "订单须经网关提交",
            "Bestellungen sind nur über ein Gateway möglich.",
        ],
    ),
    (
        "claim_released",
        [
            "the claim has expired; please try again",
            "保留时间已过，请重试",
            "Ihre Reservierung ist abgelaufen. Bitte versuchen Sie es erneut.",
        ],
    ),
    (
        "cooling_down",
        [
            "an order of yours was not paid in time; please wait before you buy again",
            "您有订单未按时付款，请稍后再购买",
            "Sie haben eine Bestellung nicht rechtzeitig bezahlt. Bitte warten Sie, bevor Sie erneut kaufen.",
        ],
    ),
    (
        "draw_open",
        [
            "reservations are still open, so the list is not final",
            "预约尚未结束，名单尚未确定",
            "Vormerkungen sind noch möglich, daher ist die Liste noch nicht endgültig.",
        ],
    ),
    (
        "group_cap",
        [
            "this order would exceed the limit per person for these sales together",
            "您在这些活动中的购买总数将超过每人限购数量",
            "Diese Bestellung überschreitet die gemeinsame Höchstmenge pro Person für diese Verkäufe.",
        ],
    ),
    (
        "idempotency_key_reused",
        [
            "this Idempotency-Key was used for a different request; use a new one",
            "该 Idempotency-Key 已用于其他请求，请更换新的键",
            "Dieser Idempotency-Key wurde bereits für eine andere Anfrage verwendet. Bitte verwenden Sie einen neuen.",
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
            "the body does not match the sale's fields",
            "提交的内容不符合活动要求",
            "Die Angaben entsprechen nicht den Vorgaben des Verkaufs.",
        ],
    ),
    (
        "invalid_query",
        [
            "the query string is invalid",
            "查询参数无效",
            "Die Parameter der Anfrage sind ungültig.",
        ],
    ),
    (
        "no_draw",
        [
            "there is no such sale, or it has no draw",
            "该活动不存在或不设抽签",
            "Diesen Verkauf gibt es nicht, oder er hat keine Verlosung.",
        ],
    ),
    (
        "no_method",
        [
            "this path does not support this method",
            "此路径不支持该方法",
            "Dieser Pfad unterstützt diese Methode nicht.",
        ],
    ),
    (
        "no_reservation",
        [
            "this sale needs no reservation",
            "本次活动无需预约",
            "Für diesen Verkauf ist keine Vormerkung nötig.",
        ],
    ),
    (
        "no_route",
        [
            "there is no such path",
            "该路径不存在",
            "Diese Seite gibt es nicht.",
        ],
    ),
    (
        "order_cancelled",
        [
            "the order is already cancelled",
            "订单已取消",
            "Die Bestellung wurde bereits storniert.",
        ],
    ),
    (
        "order_expired",
        [
            "the order has already expired",
            "订单已过期",
            "Die Zahlungsfrist der Bestellung ist abgelaufen.",
        ],
    ),
    (
        "order_paid",
        [
            "the order is paid and cannot be changed",
            "订单已付款，无法更改",
            "Die Bestellung ist bezahlt und kann nicht mehr geändert werden.",
        ],
    ),
    (
        "payments_not_configured",
        [
            "payments are not possible here: no payment provider is configured",
            "此处尚未开通支付",
            "Zahlungen sind hier nicht möglich: Es ist kein Zahlungsanbieter eingerichtet.",
        ],
    ),
    (
        "redis_unavailable",
        [
            "Redis did not answer; please try again",
            "服务暂时没有响应，请重试",
            "Der Dienst hat nicht geantwortet. Bitte versuchen Sie es erneut.",
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
            "reservations have not started yet",
            "预约尚未开始",
            "Vormerkungen sind noch nicht möglich.",
        ],
    ),
    (
        "sql_unavailable",
        [
            "the database did not answer; please try again",
            "服务暂时没有响应，请重试",
            "Der Dienst hat nicht geantwortet. Bitte versuchen Sie es erneut.",
        ],
    ),
    (
        "timeout",
        [
            "timeout, the outcome is unknown; please try again",
            "处理超时，结果未知，请重试",
            "Die Bearbeitung dauerte zu lange, das Ergebnis ist nicht bekannt. Bitte versuchen Sie es erneut.",
        ],
    ),
    (
        "unknown_order",
        [
            "you have no such order",
            "您没有该订单",
            "Sie haben keine solche Bestellung.",
        ],
    ),
    (
        "unknown_reservation",
        [
            "you have no reservation for this sale",
            "您没有预约本次活动",
            "Sie sind für diesen Verkauf nicht vorgemerkt.",
        ],
    ),
    (
        "unpaid_holds",
        [
            "several orders of yours were not paid in time; you can no longer buy in this sale",
            "您有多笔订单未按时付款，无法再参加本次活动",
            "Sie haben mehrere Bestellungen nicht rechtzeitig bezahlt und können in diesem Verkauf nicht mehr kaufen.",
        ],
    ),
    (
        "user_cap",
        [
            "you have reached the limit per user",
            "您已达到每人限购数量",
            "Sie haben die Höchstmenge pro Person bereits erreicht.",
        ],
    ),
    (
        "user_invalid",
        [
            "the user is not signed by a known gateway",
            "您的登录未经网关确认，请重新登录",
            "Ihre Anmeldung wurde von keinem Gateway bestätigt. Bitte melden Sie sich neu an.",
        ],
    ),
    (
        "user_missing",
        [
            "the user is missing: send the request through a gateway",
            "您尚未登录，请登录后重试",
            "Sie sind nicht angemeldet. Bitte melden Sie sich an und versuchen Sie es erneut.",
        ],
    ),
];

/// The message of a code, if there is one.
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
