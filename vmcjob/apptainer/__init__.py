"""Workers in an Apptainer image, and how the image is built, inspected and verified."""
