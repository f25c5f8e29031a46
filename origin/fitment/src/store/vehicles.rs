//! Vehicles: ids and their offsets. Rows are never deleted, so offsets are never reused.

use serde::{Deserialize, Serialize};
use sqlx::Error;
use utoipa::ToSchema;
use weir_fitment::{Offset, VehicleId};

use super::{FitmentStore, NEW_GENERATION, NEW_STAMP};
use weir_origin_core::sql::{Row, SqlError, Tx, damaged, retried, sql};

const UPDATE: &str = "
    UPDATE fitment_vehicles SET make = ?, model = ?, year = ?, engine = ? WHERE vehicle = ?";

const INSERT: &str = "
    INSERT INTO fitment_vehicles (make, model, year, engine, vehicle) VALUES (?, ?, ?, ?, ?)";

const RETIRE: &str = "UPDATE fitment_vehicles SET vehicle = NULL WHERE vehicle = ?";

const SELECT_ONE: &str = "
    SELECT place, vehicle, make, model, year, engine FROM fitment_vehicles WHERE vehicle = ?";

const SELECT_PLACE: &str = "
    SELECT place, vehicle, make, model, year, engine FROM fitment_vehicles WHERE place = ?";

const SELECT_BEHIND: &str = "
    SELECT place, vehicle FROM fitment_vehicles WHERE place > ? ORDER BY place LIMIT ?";

const SELECT_LAST: &str = "SELECT COALESCE(MAX(place), 0) AS place FROM fitment_vehicles";

/// The name must contain each word.
const SEARCH: &str = "
    SELECT place, vehicle, make, model, year, engine FROM fitment_vehicles
    WHERE vehicle IS NOT NULL AND LOWER(make) LIKE ? ESCAPE '!' AND LOWER(model) LIKE ? ESCAPE '!'
    ORDER BY make, model, year, vehicle LIMIT ?";

/// Fields of a vehicle besides its number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewVehicle {
    /// Its make.
    #[serde(default)]
    pub make: String,
    /// Its model.
    #[serde(default)]
    pub model: String,
    /// Model year; 0: unknown.
    #[serde(default)]
    pub year: u16,
    /// Its engine.
    #[serde(default)]
    pub engine: String,
}

/// A vehicle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Vehicle {
    /// The vehicle's number.
    #[schema(value_type = String, pattern = "^[0-9]{7}$")]
    pub vehicle: VehicleId,
    /// Its offset.
    #[serde(skip)]
    pub offset: Offset,
    /// Further fields.
    #[serde(flatten)]
    pub about: NewVehicle,
}

impl NewVehicle {
    /// Names the field that is too long.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let at_most = |name, text: &str, max: usize| match text.chars().count() <= max {
            true => Ok(()),
            false => Err((name, format!("has more than {max} characters"))),
        };
        at_most("make", &self.make, 64)?;
        at_most("model", &self.model, 128)?;
        at_most("engine", &self.engine, 64)
    }
}

impl FitmentStore {
    /// Creates or changes vehicles and returns the number of new ones.
    pub async fn put_vehicles(
        &self,
        vehicles: &[(VehicleId, NewVehicle)],
    ) -> Result<usize, SqlError> {
        Ok(retried(async || {
            let (mut tx, _) = self.change().await?;
            let mut new = 0;
            for (vehicle, about) in vehicles {
                new += usize::from(put_vehicle(&mut tx, *vehicle, about).await?);
            }
            tx.commit().await?;
            Ok(new)
        })
        .await?)
    }

    /// Retires a vehicle: its id becomes unknown and its offset stays unused. Returns whether it existed.
    pub async fn retire_vehicle(&self, vehicle: VehicleId) -> Result<bool, SqlError> {
        Ok(retried(async || {
            let (mut tx, _) = self.change().await?;
            let retired = tx.execute(sql(RETIRE).number(vehicle.number())).await? > 0;
            if retired {
                tx.execute(sql(NEW_GENERATION)).await?;
                tx.execute(sql(NEW_STAMP)).await?;
            }
            tx.commit().await?;
            Ok(retired)
        })
        .await?)
    }

    /// Reads a vehicle, unless it is unknown.
    pub async fn vehicle(&self, vehicle: VehicleId) -> Result<Option<Vehicle>, SqlError> {
        let row = self
            .db
            .one(sql(SELECT_ONE).number(vehicle.number()))
            .await?;
        Ok(row.as_ref().map(read).transpose()?.flatten())
    }

    /// Reads the vehicle at this offset, unless it is retired.
    pub async fn vehicle_at(&self, offset: Offset) -> Result<Option<Vehicle>, SqlError> {
        let row = self.db.one(sql(SELECT_PLACE).number(offset.get())).await?;
        Ok(row.as_ref().map(read).transpose()?.flatten())
    }

    /// Lists up to `limit` vehicles whose make and model contain these texts.
    pub async fn search_vehicles(
        &self,
        make: &str,
        model: &str,
        limit: usize,
    ) -> Result<Vec<Vehicle>, SqlError> {
        let [make, model] = [make, model].map(pattern);
        let rows = self
            .db
            .all(sql(SEARCH).text(&make).text(&model).number(limit))
            .await?;
        let all = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        Ok(all.into_iter().flatten().collect())
    }

    /// The vehicle ids of up to `limit` offsets from `after + 1`, ending with the last row; `None`: the offset is
    /// unused.
    pub async fn vehicles_behind(
        &self,
        after: u32,
        limit: u32,
    ) -> Result<Vec<Option<VehicleId>>, SqlError> {
        let rows = self
            .db
            .all(sql(SELECT_BEHIND).number(after).number(limit))
            .await?;
        let mut all = Vec::with_capacity(rows.len());
        for row in rows {
            let place: u32 = row.number("place")?;
            let at = (place - after - 1) as usize;
            if at >= limit as usize {
                // After a gap left by a failed transaction. The next call returns it.
                all.resize(limit as usize, None);
                break;
            }
            all.resize(at, None);
            all.push(id(&row)?);
        }
        Ok(all)
    }

    /// Number of offsets.
    pub async fn vehicle_count(&self) -> Result<u32, SqlError> {
        let row = self.db.one(sql(SELECT_LAST)).await?;
        let row = row.ok_or_else(|| damaged("place", "no row"))?;
        Ok(row.number("place")?)
    }

    /// Reads all vehicles for an import: calls `take` with each id and offset.
    pub(crate) async fn each_vehicle(
        &self,
        mut take: impl FnMut(VehicleId, Offset),
    ) -> Result<(), SqlError> {
        const STEP: u32 = 20_000;
        let mut after = 0;
        loop {
            let some = self.vehicles_behind(after, STEP).await?;
            for (vehicle, number) in some.iter().zip(after + 1..) {
                if let (Some(vehicle), Some(offset)) = (vehicle, Offset::new(number)) {
                    take(*vehicle, offset);
                }
            }
            match u32::try_from(some.len()) {
                Ok(count @ 1..) => after += count,
                _ => return Ok(()),
            }
        }
    }
}

/// Writes a vehicle. Returns whether it is new.
pub(super) async fn put_vehicle(
    tx: &mut Tx,
    vehicle: VehicleId,
    about: &NewVehicle,
) -> Result<bool, Error> {
    let with_values = |statement| {
        sql(statement)
            .text(&about.make)
            .text(&about.model)
            .number(about.year)
            .text(&about.engine)
            .number(vehicle.number())
    };
    if tx.execute(with_values(UPDATE)).await? > 0 {
        return Ok(false);
    }
    // MySQL does not count a row whose values are unchanged.
    if tx
        .one(sql(SELECT_ONE).number(vehicle.number()))
        .await?
        .is_some()
    {
        return Ok(false);
    }
    tx.execute(with_values(INSERT)).await?;
    Ok(true)
}

/// The offset of a vehicle inside a transaction.
pub(super) async fn offset_in(tx: &mut Tx, vehicle: VehicleId) -> Result<Option<Offset>, Error> {
    let row = tx.one(sql(SELECT_ONE).number(vehicle.number())).await?;
    let place = row.map(|row| row.number("place")).transpose()?;
    Ok(place.and_then(Offset::new))
}

fn id(row: &Row) -> Result<Option<VehicleId>, Error> {
    let number = row.maybe("vehicle")?;
    let id = number.map(|number| {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        VehicleId::from_number(number).map_err(|error| damaged("vehicle", error))
    });
    id.transpose()
}

pub(super) fn read(row: &Row) -> Result<Option<Vehicle>, Error> {
    let Some(vehicle) = id(row)? else {
        return Ok(None);
    };
    let offset = Offset::new(row.number("place")?);
    Ok(Some(Vehicle {
        vehicle,
        offset: offset.ok_or_else(|| damaged("place", "is out of range"))?,
        about: NewVehicle {
            make: row.text("make")?,
            model: row.text("model")?,
            year: row.number("year")?,
            engine: row.text("engine")?,
        },
    }))
}

/// A `LIKE` pattern for texts that contain `part`. `!` escapes wildcards.
fn pattern(part: &str) -> String {
    let mut pattern = String::from("%");
    for char in part.to_lowercase().chars() {
        if matches!(char, '%' | '_' | '!') {
            pattern.push('!');
        }
        pattern.push(char);
    }
    pattern + "%"
}
