/** What tabs.js takes from widget.js; build.mjs puts in its place the modules of both. */
export {};
