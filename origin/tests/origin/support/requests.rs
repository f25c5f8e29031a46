//! Requests to the origin's ports.

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use weir_base::headers::{PAYMENT_SIGNATURE, PAYMENT_TIMESTAMP, USER, USER_SIGNATURE};
use weir_base::key::{KeyRing, SigningKey};
use weir_origin::clock::now_ms;
use weir_sale::claim::Ticket;

use super::*;

/// The header of a gateway for a signed-in user.
pub fn user_headers(name: &str) -> Vec<(&'static str, Vec<u8>)> {
    let ring = KeyRing::new(vec![key()]).unwrap();
    let signed = weir_sale::identity::sign(&ring, &user(name), now_ms());
    vec![
        (USER, signed.value.into()),
        (USER_SIGNATURE, signed.signature.into()),
    ]
}

impl World {
    /// `POST /orders` with this claim.
    pub async fn order(&self, ticket: &Ticket) -> Answer {
        self.post_order(&claim_headers(ticket)).await
    }

    /// `POST /orders` with these headers.
    pub async fn post_order(&self, headers: &[(&str, Vec<u8>)]) -> Answer {
        self.post_order_with(headers, "").await
    }

    /// Like [`World::post_order`], with a body.
    pub async fn post_order_with(&self, headers: &[(&str, Vec<u8>)], body: &str) -> Answer {
        let mut request = Request::post("/orders");
        for (name, value) in headers {
            request = request.header(*name, value.as_slice());
        }
        self.public(request.body(Body::from(body.to_owned())).unwrap())
            .await
    }

    /// The raw answer to a request to the public port.
    #[allow(dead_code, reason = "one of the binaries leaves these tests out")]
    pub async fn raw(&self, request: Request<Body>) -> axum::response::Response {
        self.app.clone().oneshot(request).await.unwrap()
    }

    /// The routes of the public port and of the admin port.
    #[allow(dead_code, reason = "one of the binaries leaves these tests out")]
    pub fn routers(&self) -> [Router; 2] {
        [self.app.clone(), self.admin.clone()]
    }

    /// A request of this user to the public port, as a gateway forwards it.
    pub async fn as_user(&self, name: &str, method: &str, path: &str) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in user_headers(name) {
            request = request.header(name, value);
        }
        self.public(request.body(Body::empty()).unwrap()).await
    }

    /// Like [`World::as_user`], with a body.
    pub async fn as_user_with(&self, name: &str, method: &str, path: &str, body: &Value) -> Answer {
        let ring = KeyRing::new(vec![key()]).unwrap();
        let signed = weir_sale::identity::sign(&ring, &user(name), now_ms());
        let request = Request::builder().method(method).uri(path);
        let request = request.header(USER, signed.value);
        let request = request.header(USER_SIGNATURE, signed.signature);
        self.public(request.body(Body::from(body.to_string())).unwrap())
            .await
    }

    /// Starts a payment of this order; returns its id.
    pub async fn start_payment(&self, name: &str, order_path: &str) -> String {
        let started = self
            .as_user(name, "POST", &format!("{order_path}/pay"))
            .await;
        assert!(started.status.is_success(), "{started:?}");
        started.body["payment"].as_str().unwrap().to_owned()
    }

    /// The provider's report of a payment, signed now with the current key.
    pub async fn callback(&self, event: &str, payment: &str, state: &str) -> Answer {
        let body = json!({ "event": event, "payment": payment, "state": state }).to_string();
        let at_s = now_ms() / 1_000;
        self.callback_as("p1", PAYMENT_SECRET, at_s, &body, &body)
            .await
    }

    /// A callback with this body and a signature of `signed`.
    pub async fn callback_as(
        &self,
        id: &str,
        secret: &str,
        at_s: u64,
        signed: &str,
        body: &str,
    ) -> Answer {
        let key = SigningKey::new(id, secret.as_bytes()).unwrap();
        let signature = key.sign(&format!("{at_s}.{signed}"));
        let request = Request::post("/payments/callback")
            .header(PAYMENT_TIMESTAMP, at_s.to_string())
            .header(PAYMENT_SIGNATURE, signature);
        self.public(request.body(Body::from(body.to_owned())).unwrap())
            .await
    }

    /// Pays an order: starts a payment, and reports it as paid by the provider.
    pub async fn pay(&self, name: &str, order_path: &str) -> Answer {
        let payment = self.start_payment(name, order_path).await;
        self.callback(&format!("{payment}-paid"), &payment, "paid")
            .await
    }

    /// Creates and loads a sale that differs from [`sale_json`] in these fields.
    pub async fn sale_with(&self, sale: &str, total: u64, members: Value) {
        let mut json = sale_json(sale, total);
        for (name, value) in members.as_object().unwrap() {
            json[name] = value.clone();
        }
        let response = self.admin("POST", "/sales", &json).await;
        assert_eq!(response.status, 201, "{response:?}");
        let path = format!("/sales/{sale}/warm");
        let warmed = self.admin("POST", &path, &Value::Null).await;
        assert_eq!(warmed.status, 200, "{warmed:?}");
    }

    /// A request to the public port.
    pub async fn public(&self, request: Request<Body>) -> Answer {
        answer(&self.app, request).await
    }

    /// A request to the admin port, with its token.
    pub async fn admin(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.admin_text(method, path, &body.to_string()).await
    }

    /// A request to the admin port, with its token and these headers.
    pub async fn admin_with(
        &self,
        method: &str,
        path: &str,
        body: &Value,
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        request = request.header("authorization", format!("Bearer {TOKEN}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_string())).unwrap();
        answer(&self.admin, request).await
    }

    /// The raw answer of the admin port to a GET.
    pub async fn admin_bytes(&self, path: &str) -> Vec<u8> {
        let request = Request::get(path).header("authorization", format!("Bearer {TOKEN}"));
        bytes(&self.admin, request.body(Body::empty()).unwrap()).await
    }

    pub async fn admin_text(&self, method: &str, path: &str, body: &str) -> Answer {
        let bearer = format!("Bearer {TOKEN}");
        self.admin_as(method, path, body, Some(&bearer)).await
    }

    /// Sends a prepared request to the admin port.
    #[allow(dead_code, reason = "one of the binaries leaves these tests out")]
    pub async fn admin_request(&self, request: Request<Body>) -> Answer {
        answer(&self.admin, request).await
    }

    /// A request to the admin port with this `authorization`.
    pub async fn admin_as(
        &self,
        method: &str,
        path: &str,
        body: &str,
        authorization: Option<&str>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(value) = authorization {
            request = request.header("authorization", value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        answer(&self.admin, request).await
    }
}

async fn bytes(router: &Router, request: Request<Body>) -> Vec<u8> {
    let response = router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.unwrap();
    body.to_bytes().to_vec()
}

async fn answer(router: &Router, request: Request<Body>) -> Answer {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = router.clone().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&body);
    let answer = Answer {
        status: head.status,
        headers: head.headers,
        body: match body.is_empty() {
            true => Value::Null,
            // Metrics are text.
            false => serde_json::from_slice(&body).unwrap_or_else(|_| text.clone().into()),
        },
    };
    contract::hold(&method, &path, &answer);
    answer
}
