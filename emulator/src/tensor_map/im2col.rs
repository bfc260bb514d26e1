//! The walk over the pixels of an im2col tensor map.

/// The order in which a copy goes from pixel to pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    /// The bounding box: first and last coordinate of a base in width, height and depth.
    pub(crate) bounds: [(i64, i64); 3],
    /// The filter offsets: the distance of the copy's pixels from their bases.
    pub(crate) offsets: [i64; 3],
}

impl Walk {
    /// The coordinates of pixel `index` of a copy with base `start`, in a tensor of `rank` dimensions.
    ///
    /// Bases go through the bounding box in steps, width first. At the end of a dimension they return to its
    /// first coordinate and advance by one step in the next dimension. After the last dimension comes the
    /// next image.
    pub(crate) fn place(&self, start: &[i64; 5], index: u32, rank: usize, steps: &[u32; 5]) -> [i64; 5] {
        let (mut place, mut ahead, image) = (*start, i64::from(index), rank - 1);
        for dim in 1..image {
            let ((low, high), step) = (self.bounds[dim - 1], i64::from(steps[dim]));
            let behind = (high - place[dim]) / step;
            if ahead <= behind {
                place[dim] += ahead * step;
                ahead = 0;
                break;
            }
            ahead -= behind + 1;
            let all = (high - low) / step + 1;
            place[dim] = low + ahead % all * step;
            ahead = ahead / all + 1;
        }
        place[image] += ahead;
        for (place, offset) in place[1..image].iter_mut().zip(self.offsets) {
            *place += offset;
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next base, as the manual defines it: one step, and a carry at the end of the box.
    fn next(mut base: [i64; 5], walk: &Walk, rank: usize, steps: &[u32; 5]) -> [i64; 5] {
        for dim in 1..rank - 1 {
            base[dim] += i64::from(steps[dim]);
            if base[dim] <= walk.bounds[dim - 1].1 {
                return base;
            }
            base[dim] = walk.bounds[dim - 1].0;
        }
        base[rank - 1] += 1;
        base
    }

    #[test]
    fn pixels_follow_each_other_step_by_step() {
        let walk = Walk { bounds: [(-2, 5), (-1, 3), (0, 1)], offsets: [0; 3] };
        for rank in 3..=5 {
            for steps in [[1; 5], [1, 2, 1, 1, 1], [1, 3, 2, 2, 1], [1, 8, 8, 8, 1]] {
                for start in [[0, -2, -1, 0, 0], [8, 1, 2, 1, 0], [0, 5, 3, 1, 7]] {
                    let mut base = start;
                    for index in 0..200 {
                        let at = walk.place(&start, index, rank, &steps);
                        assert_eq!(at, base, "rank {rank}, {steps:?}, {start:?}, pixel {index}");
                        base = next(base, &walk, rank, &steps);
                    }
                }
            }
        }
        let moved = Walk { offsets: [2, 1, 0], ..walk };
        assert_eq!(moved.place(&[0, 5, -1, 0, 0], 1, 5, &[1; 5]), [0, 0, 1, 0, 0], "base (-2, 0), moved");
    }
}
