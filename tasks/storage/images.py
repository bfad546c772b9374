"""stub"""

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")
