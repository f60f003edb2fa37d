import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

export const runningPlugins: JupyterFrontEndPlugin<unknown>[] = [];
