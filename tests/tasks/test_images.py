import numpy as np
import pytest

from pipeline.tasks.images import grey, images_of, padded, patches_of


@pytest.mark.parametrize("side", [1, 2, 4, 8])
@pytest.mark.parametrize("channels", [1, 3])
def test_patches_are_cut_in_raster_order_and_can_be_put_together_again(side: int, channels: int) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, channels), np.uint8)
    patches = patches_of(images, side)
    across = 8 // side
    for token in range(across**2):
        row, column = side * (token // across), side * (token % across)
        tile = images[:, row : row + side, column : column + side]
        np.testing.assert_array_equal(patches[:, token], tile.reshape(3, -1))
    np.testing.assert_array_equal(images_of(patches, 8, side, channels), images)


def test_no_images_keep_their_shape() -> None:
    assert patches_of(np.zeros((0, 32, 32, 3), np.uint8), 4).shape == (0, 64, 48)


def test_padding_is_black_and_even_on_all_sides() -> None:
    images = np.full((1, 28, 28), 9, np.uint8)
    bordered = padded(images, 32)
    assert bordered.shape == (1, 32, 32)
    np.testing.assert_array_equal(bordered[:, 2:-2, 2:-2], images)
    assert bordered.sum() == images.sum()


def test_grey_of_white_and_black() -> None:
    assert grey(np.array([[[[255, 255, 255], [0, 0, 0]]]], np.uint8)).tolist() == [[[255, 0]]]
