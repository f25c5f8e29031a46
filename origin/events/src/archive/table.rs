//! Encodes a file of events: Parquet, compressed with Snappy.

use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use weir_event::envelope::Envelope;

/// The columns. Type, day and hour are in the path and have no column.
const SCHEMA: &str = "
    message event {
        required binary id (STRING);
        required int64 at_ms (TIMESTAMP(MILLIS, true));
        required int64 received_ms (TIMESTAMP(MILLIS, true));
        optional binary customer (STRING);
        optional binary visitor (STRING);
        required binary key (STRING);
        optional binary address (STRING);
        required binary topics (STRING);
        required binary attributes (STRING);
        required binary source (STRING);
        required int64 position;
    }";

/// An event and its position in the log.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Archived {
    pub(super) position: u64,
    pub(super) envelope: Envelope,
}

/// The values of a column.
enum Column {
    Texts(Vec<ByteArray>),
    /// Definition level 0 marks a null.
    MaybeTexts(Vec<ByteArray>, Vec<i16>),
    Numbers(Vec<i64>),
}

/// Encodes a file. The same events give the same bytes.
pub(super) fn file(source: &str, events: &[Archived]) -> Result<Vec<u8>, ParquetError> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by("weir".to_owned())
        .build();
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties))?;
    let mut rows = writer.next_row_group()?;
    for values in columns(source, events) {
        let column = rows.next_column()?;
        let mut column = column.ok_or_else(|| ParquetError::General("a column too many".into()))?;
        write(&mut column, values)?;
        column.close()?;
    }
    rows.close()?;
    writer.close()?;
    Ok(bytes)
}

fn write(column: &mut SerializedColumnWriter<'_>, values: Column) -> Result<(), ParquetError> {
    match values {
        Column::Texts(texts) => {
            let column = column.typed::<ByteArrayType>();
            column.write_batch(&texts, None, None)?;
        }
        Column::MaybeTexts(texts, levels) => {
            let column = column.typed::<ByteArrayType>();
            column.write_batch(&texts, Some(&levels), None)?;
        }
        Column::Numbers(numbers) => {
            let column = column.typed::<Int64Type>();
            column.write_batch(&numbers, None, None)?;
        }
    }
    Ok(())
}

/// In the order of the schema.
fn columns(source: &str, events: &[Archived]) -> Vec<Column> {
    let texts = |text: &dyn Fn(&Envelope) -> String| {
        let all = events.iter().map(|event| text(&event.envelope));
        Column::Texts(all.map(|text| ByteArray::from(text.into_bytes())).collect())
    };
    let maybe = |text: &dyn Fn(&Envelope) -> Option<String>| {
        let all: Vec<_> = events.iter().map(|event| text(&event.envelope)).collect();
        let levels = all.iter().map(|text| i16::from(text.is_some())).collect();
        let there = all.into_iter().flatten();
        let there = there
            .map(|text| ByteArray::from(text.into_bytes()))
            .collect();
        Column::MaybeTexts(there, levels)
    };
    let numbers = |number: &dyn Fn(&Archived) -> u64| {
        let all = events.iter().map(number);
        Column::Numbers(all.map(|n| i64::try_from(n).unwrap_or(i64::MAX)).collect())
    };
    vec![
        texts(&|event| event.id.to_string()),
        numbers(&|event| event.envelope.at_ms),
        numbers(&|event| event.envelope.received_ms),
        maybe(&|event| event.customer.as_ref().map(ToString::to_string)),
        maybe(&|event| event.visitor.as_ref().map(ToString::to_string)),
        texts(&|event| event.key.to_string()),
        maybe(&|event| event.address.as_ref().map(ToString::to_string)),
        texts(&|event| {
            let topics: Vec<String> = event.topics.iter().map(ToString::to_string).collect();
            topics.join(",")
        }),
        texts(&|event| event.attributes.clone()),
        texts(&|_| source.to_owned()),
        numbers(&|event| event.position),
    ]
}
