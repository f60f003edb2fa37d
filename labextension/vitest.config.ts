import { defineConfig } from 'vitest/config';

// A test takes 8 s where the computer is busy with others; what hangs is found all the same.
export default defineConfig({ test: { include: ['test/**/*.test.ts'], testTimeout: 60_000 } });
