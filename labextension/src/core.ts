/** The exports of widget.js that tabs.js uses; build.mjs generates them. */
export {};
