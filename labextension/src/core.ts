/** The modules that the tabs' bundle shares with this one, by their paths; build.mjs fills it. */
export const core: Record<string, unknown> = {};
