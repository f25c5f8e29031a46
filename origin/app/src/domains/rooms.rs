//! Waiting rooms in the origin.

use axum::Router;
use tokio_util::sync::CancellationToken;

use super::{Domain, Jobs};
use crate::access::AuthLayer;
use crate::origin::Origin;
use crate::rooms::{self, Rooms};

impl Origin {
    /// Waiting rooms.
    pub fn rooms(&self) -> &Rooms {
        &self.rooms
    }
}

impl Domain for Rooms {
    fn admin(&self, _origin: &Origin, auth: &AuthLayer) -> Router {
        auth.mount(rooms::http::admin(), self.clone())
    }

    fn spawn(&self, _origin: &Origin, stop: &CancellationToken) -> Jobs {
        Ok(Self::spawn(self, stop))
    }
}
