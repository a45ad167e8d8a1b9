"""What works, and how fast, on the GPU at hand; tiny, all of it runs on a CPU."""
