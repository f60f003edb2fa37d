/**
 * Classifies cells for "run this cell as an experiment". Independent of JupyterLab.
 *
 *     %%det_experiment …     an experiment: run it
 *     a configuration with `entrypoint:` or `searcher:`: add the magic line
 *     empty                  write a new experiment into it
 *     anything else          code, which may define an entrypoint
 */

export const MAGIC = '%%det_experiment';

/** Arguments that ranks pass to a function, as in det_jupyter/contract/trial/rank_arguments.py. */
const GIVEN = '\\b(core_context|context|hparams|info)\\b';

export type Cell =
  | { kind: 'experiment' }
  | { kind: 'configuration' }
  | { kind: 'empty' }
  | { kind: 'code'; entrypoint: string | null };

/** Top-level keys of docs/configuration.md, and of configurations written for Determined. */
export const KEYS: ReadonlySet<string> = new Set([
  'alerts',
  'bind_mounts',
  'checkpoint_policy',
  'checkpoint_storage',
  'data',
  'data_layer',
  'debug',
  'description',
  'entrypoint',
  'environment',
  'hang',
  'hyperparameters',
  'integrations',
  'internal',
  'labels',
  'log_policies',
  'max_restarts',
  'min_checkpoint_period',
  'min_validation_period',
  'name',
  'on_nan_loss',
  'optimizations',
  'pbs',
  'perform_initial_validation',
  'preemption_timeout',
  'profiling',
  'project',
  'records_per_epoch',
  'reproducibility',
  'resources',
  'retention_policy',
  'scheduling_unit',
  'searcher',
  'security',
  'slurm',
  'template',
  'tensorboard_storage',
  'trackers',
  'version',
  'workspace'
]);

export function classify(source: string): Cell {
  const text = source.trim();
  if (text === '') {
    return { kind: 'empty' };
  }
  if (/^%%det_experiment(\s|$)/.test(text)) {
    return { kind: 'experiment' };
  }
  if (isConfiguration(text)) {
    return { kind: 'configuration' };
  }
  return { kind: 'code', entrypoint: text.startsWith('%%') ? null : findEntrypoint(source) };
}

function isConfiguration(text: string): boolean {
  const lines = text.split('\n').filter(line => /^[^\s#}\]]/.test(line));
  const keys = lines.map(line => /^(\w+):(\s|$)/.exec(line)?.[1] ?? '');
  return (
    keys.every(key => KEYS.has(key)) && keys.some(key => key === 'entrypoint' || key === 'searcher')
  );
}

/** The last trial class, else the last function without required arguments or the last class. */
export function findEntrypoint(source: string): string | null {
  const classes = [...source.matchAll(/^class\s+(\w+)\s*(?:\(([^)]*)\))?\s*:/gm)];
  const trials = classes.filter(([, , bases = '']) => bases.includes('Trial'));
  const functions = [...source.matchAll(/^def\s+(\w+)\s*\(([^)]*)\)/gm)].filter(
    ([, , parameters = '']) => parameters.split(',').every(isOptional)
  );
  const found = trials.at(-1) ?? functions.at(-1) ?? classes.at(-1);
  return found?.[1] ?? null;
}

/**
 * The entrypoint of the nearest cell above that defines a trial class or a function for ranks.
 *
 * @param sources - Code cells from top to bottom.
 */
export function nearestEntrypoint(sources: readonly string[]): string | null {
  for (const source of sources.toReversed()) {
    const cell = classify(source);
    const name = cell.kind === 'code' ? cell.entrypoint : null;
    if (
      name !== null &&
      new RegExp(`^(class ${name}\\(.*Trial|def ${name}\\(.*${GIVEN})`, 'ms').test(source)
    ) {
      return name;
    }
  }
  return null;
}

function isOptional(parameter: string): boolean {
  return /^\s*($|\*|\/)|=/.test(parameter) || new RegExp(`^\\s*${GIVEN}`).test(parameter);
}

/** The configuration in a cell: the text below the magic line, or all of it. */
export function configurationOf(text: string): string {
  return text.replace(/^%%det_experiment[^\n]*\n/, '');
}

/** A cell with this configuration and the entrypoint, if there is one. */
export function newCellSource(
  configuration: string,
  entrypoint: string | null,
  magic = MAGIC
): string {
  const body = configurationOf(configuration).trimEnd();
  return `${magic}\n${entrypoint === null ? body : withEntrypoint(body, entrypoint)}`;
}

function withEntrypoint(body: string, entrypoint: string): string {
  const line = `entrypoint: ${entrypoint}`;
  return /^entrypoint:.*$/m.test(body)
    ? body.replace(/^entrypoint:.*$/m, line)
    : `${line}\n${body}`.trimEnd();
}

/** Whether a cell is an experiment with this entrypoint. */
export function isExperimentOf(source: string, entrypoint: string): boolean {
  const named = /^entrypoint:\s*(["']?)(\w+)\1\s*(#.*)?$/m.exec(source);
  return classify(source).kind === 'experiment' && named?.[2] === entrypoint;
}
