//! Garages: the vehicles of users.

use serde::Serialize;
use utoipa::ToSchema;
use weir_base::id::UserId;
use weir_fitment::{Offset, VehicleId};

use super::vehicles::offset_in;
use super::{FitmentStore, NewVehicle};
use weir_origin_core::sql::{SqlError, Tx, retried, sql};

/// Maximum number of vehicles of a user.
pub const GARAGE_MAX: usize = 20;

const SELECT: &str = "
    SELECT v.place, v.vehicle, v.make, v.model, v.year, v.engine, g.is_default
    FROM fitment_garages g JOIN fitment_vehicles v ON v.place = g.place
    WHERE g.user_id = ? AND v.vehicle IS NOT NULL ORDER BY g.is_default DESC, g.added_at_ms, g.place";

const HAS: &str = "SELECT is_default FROM fitment_garages WHERE user_id = ? AND place = ?";

const INSERT: &str = "
    INSERT INTO fitment_garages (user_id, place, is_default, added_at_ms) VALUES (?, ?, ?, ?)";

const DELETE: &str = "DELETE FROM fitment_garages WHERE user_id = ? AND place = ?";

const SET_DEFAULT: &str = "
    UPDATE fitment_garages SET is_default = CASE WHEN place = ? THEN 1 ELSE 0 END WHERE user_id = ?";

const FIRST: &str = "
    SELECT g.place FROM fitment_garages g JOIN fitment_vehicles v ON v.place = g.place
    WHERE g.user_id = ? AND v.vehicle IS NOT NULL ORDER BY g.added_at_ms, g.place LIMIT 1";

/// A vehicle in a garage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = GarageVehicle)]
pub struct GarageVehicle {
    /// The vehicle's number.
    #[schema(value_type = String, pattern = "^[0-9]{7}$")]
    pub vehicle: VehicleId,
    /// Further fields.
    #[serde(flatten)]
    pub about: NewVehicle,
    /// Whether it is the default vehicle.
    pub is_default: bool,
}

/// Result of a change to a garage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The change was applied.
    Done,
    /// The vehicle does not exist, or is not in the garage.
    NoVehicle,
    /// The garage already has [`GARAGE_MAX`] vehicles.
    Full,
}

/// Stores garages.
#[derive(Clone, Copy, Debug)]
pub struct GarageStore<'a>(pub(super) &'a FitmentStore);

impl GarageStore<'_> {
    /// Lists a user's vehicles, default first. Retired vehicles are left out.
    pub async fn garage(self, user: &UserId) -> Result<Vec<GarageVehicle>, SqlError> {
        let rows = self.0.db.all(sql(SELECT).text(user.as_str())).await?;
        let mut all = Vec::with_capacity(rows.len());
        for row in rows {
            if let Some(vehicle) = super::vehicles::read(&row)? {
                all.push(GarageVehicle {
                    vehicle: vehicle.vehicle,
                    about: vehicle.about,
                    is_default: row.flag("is_default")?,
                });
            }
        }
        Ok(all)
    }

    /// Adds a vehicle to a garage. It becomes the default if `is_default` is set, or if it is the first one.
    pub async fn bind(
        self,
        user: &UserId,
        vehicle: VehicleId,
        is_default: bool,
    ) -> Result<Bound, SqlError> {
        Ok(retried(async || {
            // Lock the version row: two concurrent requests of a user must not both add the twentieth vehicle.
            let (mut tx, _) = self.0.change().await?;
            let Some(offset) = offset_in(&mut tx, vehicle).await? else {
                return Ok(Bound::NoVehicle);
            };
            let (bound, defaults) = counts(&mut tx, user).await?;
            if !has(&mut tx, user, offset).await? {
                if bound >= GARAGE_MAX {
                    return Ok(Bound::Full);
                }
                let insert = sql(INSERT).text(user.as_str()).number(offset.get());
                tx.execute(insert.number(0).number(self.0.now_ms())).await?;
            }
            if is_default || defaults == 0 {
                set_default(&mut tx, user, offset.get()).await?;
            }
            tx.commit().await?;
            Ok(Bound::Done)
        })
        .await?)
    }

    /// Removes a vehicle from a garage. If it was the default, the oldest remaining vehicle becomes the default.
    pub async fn unbind(self, user: &UserId, vehicle: VehicleId) -> Result<Bound, SqlError> {
        Ok(retried(async || {
            let (mut tx, _) = self.0.change().await?;
            let Some(offset) = offset_in(&mut tx, vehicle).await? else {
                return Ok(Bound::NoVehicle);
            };
            let delete = sql(DELETE).text(user.as_str()).number(offset.get());
            if tx.execute(delete).await? == 0 {
                return Ok(Bound::NoVehicle);
            }
            if counts(&mut tx, user).await?.1 == 0
                && let Some(first) = tx.one(sql(FIRST).text(user.as_str())).await?
            {
                set_default(&mut tx, user, first.number("place")?).await?;
            }
            tx.commit().await?;
            Ok(Bound::Done)
        })
        .await?)
    }
}

async fn counts(tx: &mut Tx, user: &UserId) -> Result<(usize, u64), sqlx::Error> {
    // MySQL's `SUM` returns a decimal, so count the rows instead.
    let rows = tx.all(sql(SELECT).text(user.as_str())).await?;
    let mut defaults = 0;
    for row in &rows {
        defaults += u64::from(row.flag("is_default")?);
    }
    Ok((rows.len(), defaults))
}

async fn has(tx: &mut Tx, user: &UserId, offset: Offset) -> Result<bool, sqlx::Error> {
    let select = sql(HAS).text(user.as_str()).number(offset.get());
    Ok(tx.one(select).await?.is_some())
}

async fn set_default(tx: &mut Tx, user: &UserId, place: u32) -> Result<(), sqlx::Error> {
    let update = sql(SET_DEFAULT).number(place).text(user.as_str());
    tx.execute(update).await.map(drop)
}
