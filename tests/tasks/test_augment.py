import numpy as np
import pytest

from pipeline.tasks.augment import augmented_patches, crop_flip_rotate
from pipeline.tasks.images import images_of, patches_of

IMAGES = np.random.default_rng(0).integers(1, 256, (12, 32, 32, 3), np.uint8)
ROWS = np.arange(12)


def test_an_image_is_a_function_of_seed_step_and_row() -> None:
    whole = crop_flip_rotate(IMAGES, 0, 7, ROWS)
    np.testing.assert_array_equal(crop_flip_rotate(IMAGES[5:7], 0, 7, ROWS[5:7]), whole[5:7])
    for seed, step in ((1, 7), (0, 8)):
        assert (crop_flip_rotate(IMAGES, seed, step, ROWS) != whole).any(axis=(1, 2, 3)).all()


def test_patches_are_augmented_as_the_images_they_are_cut_from() -> None:
    image = {"side": 32, "channels": 3, "patch": 4}
    found = augmented_patches(patches_of(IMAGES, 4), image, 0, 3, ROWS)
    np.testing.assert_array_equal(images_of(found, 32, 4, 3), crop_flip_rotate(IMAGES, 0, 3, ROWS))


def test_half_of_the_images_are_mirrored_and_pixels_move_at_most_as_far_as_crop_and_rotation_allow() -> None:
    """A dot right of the middle, traced through 400 draws."""
    images = np.zeros((400, 32, 32, 1), np.uint8)
    images[:, 14:18, 22:26] = 255
    out = crop_flip_rotate(images, 0, 0, np.arange(400))[..., 0] > 0
    assert out.any(axis=(1, 2)).all()
    weight = out / out.sum(axis=(1, 2), keepdims=True)
    column = (weight * np.arange(32)).sum(axis=(1, 2))
    row = (weight * np.arange(32)[:, None]).sum(axis=(1, 2))
    assert np.mean(column < 15.5) == pytest.approx(0.5, abs=0.08)
    reach = 8 * np.sin(np.deg2rad(20)) + 4 * 1.4 + 0.5
    assert np.abs(row - 15.5).max() <= reach
    assert row.std() > 1


def test_what_comes_from_outside_is_black_and_most_of_the_image_stays() -> None:
    out = crop_flip_rotate(IMAGES, 0, 0, ROWS)
    black = (out == 0).all(axis=3).mean(axis=(1, 2))
    assert (black > 0).any()
    assert black.max() < 0.4


@pytest.mark.slow  # importing torchvision takes seconds
def test_rotation_and_crop_agree_with_torchvision() -> None:
    import torch
    from torchvision.transforms import functional

    from pipeline.tasks import draws

    rows = np.arange(20)
    images = np.random.default_rng(1).integers(1, 256, (20, 32, 32, 3), np.uint8)
    found = crop_flip_rotate(images, 5, 9, rows)
    drawn = draws.words(5, "augment/9", rows, 4)
    for place, image in enumerate(images):
        top, left = (int(shift) for shift in draws.below(drawn[place, :2], 9))
        tensor = functional.pad(torch.from_numpy(image).permute(2, 0, 1), [4, 4, 4, 4])
        tensor = functional.crop(tensor, top, left, 32, 32)
        if draws.unit(drawn[place, 2:3])[0] < 0.5:
            tensor = functional.hflip(tensor)
        tensor = functional.rotate(tensor, float((2 * draws.unit(drawn[place, 3:])[0] - 1) * 20))
        same = (tensor.permute(1, 2, 0).numpy() == found[place]).mean()
        assert same > 0.98  # pixels whose source lies half way between two may round either way
