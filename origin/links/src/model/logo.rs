//! A picture for the middle of a QR code: a PNG.

use std::io::Cursor;

use png::{ColorType, Decoder, Limits, Transformations};

use super::qr::QrError;

/// Maximum file length, in bytes.
pub const FILE_LEN_MAX: usize = 256 * 1024;

/// Maximum side length, in pixels.
const SIDE_MAX: u32 = 1_024;

/// Memory limit of the decoder, in bytes.
const MEMORY_MAX: usize = 8 * 1024 * 1024;

/// A picture.
#[derive(Clone, Debug)]
pub struct Logo {
    file: Vec<u8>,
    width: u32,
    height: u32,
    /// Red, green, blue and alpha values of each pixel.
    pixels: Vec<[u8; 4]>,
}

impl Logo {
    /// Reads a PNG.
    ///
    /// # Errors
    /// [`QrError::Logo`].
    pub fn read(file: &[u8]) -> Result<Self, QrError> {
        const NO_PNG: QrError = QrError::Logo("is not a PNG");
        if file.len() > FILE_LEN_MAX {
            return Err(QrError::Logo("is larger than 256 KiB"));
        }
        let mut decoder = Decoder::new_with_limits(Cursor::new(file), Limits { bytes: MEMORY_MAX });
        let requested =
            Transformations::EXPAND | Transformations::STRIP_16 | Transformations::ALPHA;
        decoder.set_transformations(requested);
        let mut reader = decoder.read_info().map_err(|_| NO_PNG)?;
        let (width, height) = (reader.info().width, reader.info().height);
        if width.max(height) > SIDE_MAX {
            return Err(QrError::Logo("is larger than 1,024 pixels on a side"));
        }
        let mut bytes = vec![0; reader.output_buffer_size().ok_or(NO_PNG)?];
        let frame = reader.next_frame(&mut bytes).map_err(|_| NO_PNG)?;
        let bytes = bytes.get(..frame.buffer_size()).unwrap_or_default();
        let pixels: Vec<[u8; 4]> = match frame.color_type {
            ColorType::Rgba => bytes.as_chunks::<4>().0.to_vec(),
            ColorType::GrayscaleAlpha => {
                let grey = |[grey, alpha]: &[u8; 2]| [*grey, *grey, *grey, *alpha];
                bytes.as_chunks::<2>().0.iter().map(grey).collect()
            }
            _ => return Err(NO_PNG),
        };
        Ok(Self {
            file: file.to_vec(),
            width,
            height,
            pixels,
        })
    }

    /// The original file.
    pub fn file(&self) -> &[u8] {
        &self.file
    }

    /// The colour at `x`, `y` of a square with `side` pixels. The picture is centred in it and scaled to fit, over the
    /// colour `light`.
    pub fn pixel(&self, x: u32, y: u32, side: u32, light: [u8; 3]) -> [u8; 3] {
        let longest = u64::from(self.width.max(self.height));
        // Converts a position in the square to pixels of the picture. Positions before the picture are negative.
        let at = |place: u32, len: u32| {
            let shift = (longest - u64::from(len)) / 2;
            let at = u64::from(place) * longest / u64::from(side.max(1));
            at.checked_sub(shift)
                .map(|at| at.min(u64::from(u32::MAX)) as u32)
        };
        let span = |place: u32, len: u32| {
            let first = at(place, len)?;
            let end = at(place + 1, len)?.max(first + 1).min(len);
            (first < len).then_some(first..end)
        };
        let (Some(columns), Some(rows)) = (span(x, self.width), span(y, self.height)) else {
            return light;
        };
        // For a larger picture: the average of all its pixels that fall onto this one.
        let (mut sums, mut count) = ([0_u64; 3], 0_u64);
        for row in rows {
            for column in columns.clone() {
                let index = (row * self.width + column) as usize;
                let [rgb @ .., alpha] = self.pixels.get(index).copied().unwrap_or_default();
                let alpha = u64::from(alpha);
                for ((sum, colour), behind) in sums.iter_mut().zip(rgb).zip(light) {
                    *sum += u64::from(colour) * alpha + u64::from(behind) * (255 - alpha);
                }
                count += 255;
            }
        }
        // An average of bytes is a byte.
        sums.map(|sum| u8::try_from(sum / count.max(1)).unwrap_or(u8::MAX))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A picture of one colour.
    pub(in super::super) fn picture(width: u32, height: u32, colour: [u8; 4]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(ColorType::Rgba);
        let mut writer = encoder.write_header().unwrap();
        let pixels = colour.repeat((width * height) as usize);
        writer.write_image_data(&pixels).unwrap();
        writer.finish().unwrap();
        file
    }

    #[test]
    fn logo_is_centred_uncropped_in_its_square() {
        let logo = Logo::read(&picture(100, 50, [200, 0, 0, 255])).unwrap();
        let white = [255; 3];
        assert_eq!(logo.pixel(20, 20, 40, white), [200, 0, 0]);
        assert_eq!(logo.pixel(20, 1, 40, white), white);
        assert_eq!(logo.pixel(20, 39, 40, white), white);
        let glass = Logo::read(&picture(8, 8, [0, 0, 0, 51])).unwrap();
        assert_eq!(glass.pixel(3, 3, 40, white), [204; 3]);
    }

    #[test]
    fn logo_that_is_not_a_small_png_is_refused() {
        let refused = |file: &[u8]| Logo::read(file).err();
        assert_eq!(refused(b"GIF89a"), Some(QrError::Logo("is not a PNG")));
        let mut cut = picture(64, 64, [1, 2, 3, 255]);
        cut.truncate(60);
        assert_eq!(refused(&cut), Some(QrError::Logo("is not a PNG")));
        let wide = picture(1_025, 1, [0; 4]);
        let problem = QrError::Logo("is larger than 1,024 pixels on a side");
        assert_eq!(refused(&wide), Some(problem));
        assert!(refused(&vec![0; FILE_LEN_MAX + 1]).is_some());
    }
}
